//! A table of measurements, and the columns of a linear model made from it.

use std::collections::BTreeSet;
use std::io::Read;

use anyhow::{Context, bail, ensure};

use super::formula::{Expression, Formula};

/// A column of text with more levels than that is taken for numbers with a wrong one among them.
const MAX_LEVELS: usize = 20;

/// Measurements: a row each, columns by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    names: Vec<String>,
    columns: Vec<Vec<String>>,
}

/// The columns of a linear model, with the rows that have all their values.
#[derive(Clone, Debug, PartialEq)]
pub struct Design {
    /// What depends on the others.
    pub response: Vec<f64>,
    /// Names of the columns, as R names coefficients, with the number of their term; `(Intercept)` has none.
    pub names: Vec<(String, Option<usize>)>,
    pub columns: Vec<Vec<f64>>,
    /// The rows of the table that they are of: those with all values.
    pub rows: Vec<usize>,
}

/// A factor's values: numbers, or one column of zeros and ones for each level of a text but the first.
struct Values(Vec<(String, Vec<Option<f64>>)>);

impl Measurements {
    /// Reads a table with a header; columns are parted by tab, semicolon or comma, the first of them that the
    /// header has.
    pub fn read(input: impl Read) -> anyhow::Result<Measurements> {
        let text = std::io::read_to_string(input)?;
        let header = text.lines().next().unwrap_or_default();
        let delimiter = ['\t', ';'].into_iter().find(|mark| header.contains(*mark)).unwrap_or(',') as u8;
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::All).from_reader(text.as_bytes());
        let names: Vec<String> = reader.headers()?.iter().map(plain).collect();
        for (at, name) in names.iter().enumerate() {
            ensure!(!name.is_empty(), "column {} has no name in the first line", at + 1);
            ensure!(!names[..at].contains(name), "two columns have the name `{name}`");
        }
        let mut columns = vec![Vec::new(); names.len()];
        for record in reader.records() {
            for (column, value) in columns.iter_mut().zip(&record?) {
                column.push(value.to_owned());
            }
        }
        ensure!(columns.first().is_some_and(|rows| !rows.is_empty()), "the table has no rows");
        let mut measurements = Measurements { names, columns };
        measurements.add_blocks();
        Ok(measurements)
    }

    /// Adds the number of blocks, if there are bytes and the size of a block instead.
    fn add_blocks(&mut self) {
        let (Ok(bytes), Ok(size)) = (self.column("num_bytes"), self.column("block_size")) else { return };
        if self.column("blocks").is_ok() {
            return;
        }
        let over = |(bytes, size): (&String, &String)| {
            let blocks = bytes.parse::<f64>().ok()? / size.parse::<f64>().ok()?;
            Some(blocks.to_string())
        };
        let blocks = bytes.iter().zip(size).map(|row| over(row).unwrap_or_default()).collect();
        self.names.push("blocks".to_owned());
        self.columns.push(blocks);
    }

    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, Vec::len)
    }

    /// The columns of a formula's model.
    pub fn design(&self, formula: &Formula) -> anyhow::Result<Design> {
        let response = match self.values(&formula.response)?.0.pop() {
            Some((name, values)) if name == formula.response.to_string() => values,
            _ => bail!("`{}` is text; the left side must be a number", formula.response),
        };
        let intercept =
            formula.intercept.then(|| (("(Intercept)".to_owned(), None), vec![Some(1.0); self.rows()]));
        let mut columns: Vec<_> = intercept.into_iter().collect();
        for (at, term) in formula.terms.iter().enumerate() {
            let mut product = Values(vec![(String::new(), vec![Some(1.0); self.rows()])]);
            for factor in &term.0 {
                product = product.times(&self.values(factor)?);
            }
            columns.extend(product.0.into_iter().map(|(name, values)| ((name, Some(at)), values)));
        }
        let is_whole =
            |row: &usize| response[*row].is_some() && columns.iter().all(|(_, c)| c[*row].is_some());
        let whole: Vec<usize> = (0..self.rows()).filter(is_whole).collect();
        let kept = |values: &[Option<f64>]| whole.iter().filter_map(|row| values[*row]).collect::<Vec<f64>>();
        Ok(Design {
            response: kept(&response),
            columns: columns.iter().map(|(_, values)| kept(values)).collect(),
            names: columns.into_iter().map(|(name, _)| name).collect(),
            rows: whole,
        })
    }

    /// True if an expression measures something: a text, or a column of only two numbers, is a switch.
    pub fn is_measure(&self, expression: &Expression) -> anyhow::Result<bool> {
        let Values(columns) = self.values(expression)?;
        let mut known: Vec<f64> =
            columns.iter().flat_map(|(_, values)| values.iter().flatten().copied()).collect();
        known.sort_by(f64::total_cmp);
        known.dedup();
        Ok(known.len() > 2)
    }

    /// The values of an expression in all rows.
    fn values(&self, expression: &Expression) -> anyhow::Result<Values> {
        if let Expression::Column(name) = expression
            && let Some(levels) = self.levels(name)?
        {
            let rows = self.column(name)?;
            let is_level =
                |level: &str, value: &str| (!is_missing(value)).then(|| f64::from(u8::from(value == level)));
            let columns = levels.iter().skip(1).map(|level| {
                (format!("{name}{level}"), rows.iter().map(|value| is_level(level, value)).collect())
            });
            return Ok(Values(columns.collect()));
        }
        let numbers = (0..self.rows()).map(|row| self.number(expression, row)).collect::<Result<_, _>>()?;
        Ok(Values(vec![(expression.to_string(), numbers)]))
    }

    /// The number of an expression in a row; None if it is missing there, or no finite number.
    fn number(&self, expression: &Expression, row: usize) -> anyhow::Result<Option<f64>> {
        let number = match expression {
            Expression::Column(name) => {
                let value = &self.column(name)?[row];
                if is_missing(value) {
                    return Ok(None);
                }
                value
                    .parse()
                    .with_context(|| format!("`{value}` in column `{name}`, row {}, is no number", row + 1))?
            }
            Expression::Number(number) => *number,
            Expression::Log(inner) => match self.number(inner, row)? {
                Some(inner) => inner.ln(),
                None => return Ok(None),
            },
            Expression::Binary(sign, left, right) => {
                let (Some(left), Some(right)) = (self.number(left, row)?, self.number(right, row)?) else {
                    return Ok(None);
                };
                match sign {
                    '+' => left + right,
                    '-' => left - right,
                    '*' => left * right,
                    '/' => left / right,
                    _ => left.powf(right),
                }
            }
        };
        Ok(Some(number).filter(|number| number.is_finite()))
    }

    /// The levels of a column of text, the first of which is the base; None for numbers.
    fn levels(&self, name: &str) -> anyhow::Result<Option<Vec<&str>>> {
        let known: Vec<&str> =
            self.column(name)?.iter().map(String::as_str).filter(|value| !is_missing(value)).collect();
        if known.iter().all(|value| value.parse::<f64>().is_ok()) {
            return Ok(None);
        }
        let levels: BTreeSet<&str> = known.into_iter().collect();
        // Numbers with a wrong one among them; reading them as such names it.
        Ok((levels.len() <= MAX_LEVELS).then(|| levels.into_iter().collect()))
    }

    /// The column with this name, or the only one whose name begins with it.
    fn column(&self, name: &str) -> anyhow::Result<&[String]> {
        let wanted = plain(name);
        let begin: Vec<usize> =
            (0..self.names.len()).filter(|at| self.names[*at].starts_with(&wanted)).collect();
        let exact = self.names.iter().position(|known| *known == wanted);
        match (exact, &begin[..]) {
            (Some(at), _) | (None, &[at]) => Ok(&self.columns[at]),
            _ => bail!("there is no column `{name}`; the columns are {}", self.names.join(", ")),
        }
    }
}

impl Values {
    fn times(&self, other: &Values) -> Values {
        let both = |one: &Option<f64>, other: &Option<f64>| Some((*one)? * (*other)?);
        let joined = |one: &str, other: &str| match one {
            "" => other.to_owned(),
            _ => format!("{one}:{other}"),
        };
        let products = other.0.iter().flat_map(|(right, those)| {
            self.0.iter().map(move |(left, these)| {
                (joined(left, right), these.iter().zip(those).map(|(one, other)| both(one, other)).collect())
            })
        });
        Values(products.collect())
    }
}

/// A name as a formula may write it: lower case, and an underscore for what is no letter or digit.
fn plain(name: &str) -> String {
    let mapped: String =
        name.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    let parts: Vec<&str> = mapped.split('_').filter(|part| !part.is_empty()).collect();
    parts.join("_")
}

fn is_missing(value: &str) -> bool {
    value.is_empty() || value == "NA"
}

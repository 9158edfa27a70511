//! The document's own models from its own rows, and what is refused.

use super::*;

/// The 640 rows of the O_SYNC study (Hawthorne 2020, filesystem_performance/compaq_20200424.csv).
const ROWS: &str = include_str!("../seeds/osync.csv");

fn fit(formula: &str, table: &str) -> anyhow::Result<Fit> {
    Fit::of(&Formula::parse(formula)?, &Measurements::read(table.as_bytes())?)
}

/// As many digits as the document prints.
fn digits(value: f64, digits: usize) -> String {
    format!("{value:.*e}", digits - 1)
}

/// Estimate, standard error and t of each coefficient, as the document prints them.
fn printed(fit: &Fit) -> Vec<[String; 3]> {
    let row = |one: &super::fit::Coefficient| {
        [digits(one.estimate, 4), digits(one.standard_error, 4), format!("{:.3}", one.t)]
    };
    fit.coefficients.iter().map(row).collect()
}

#[test]
fn the_first_model_of_the_o_sync_study_comes_out_in_all_digits() {
    let fit = fit("sys ~ block_size + blocks * sync", ROWS).unwrap();
    let expected = [
        ["2.021e-2", "7.698e-3", "2.625"],
        ["-2.265e-7", "2.124e-7", "-1.066"],
        ["1.079e-6", "3.083e-7", "3.500"],
        ["6.859e-2", "9.342e-3", "7.342"],
        ["2.010e-4", "4.276e-7", "469.948"],
    ];
    assert_eq!(printed(&fit), expected);
    let names: Vec<&str> = fit.coefficients.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["(Intercept)", "block_size", "blocks", "syncs", "blocks:syncs"]);
    let [intercept, size, blocks, sync, _] = &fit.coefficients[..] else { panic!("{fit:?}") };
    let p = [digits(intercept.p, 4), digits(size.p, 6), digits(blocks.p, 3), digits(sync.p, 3)];
    assert_eq!(p, ["8.879e-3", "2.86673e-1", "4.98e-4", "6.48e-13"]);
    assert_eq!((fit.degrees_of_freedom, fit.null_degrees_of_freedom, fit.rows), (635, 639, 640));
    assert_eq!(format!("{:.4} {:.4}", fit.null_deviance, fit.residual_deviance), "5845.9147 7.6393");
    assert_eq!(format!("{:.1} {:.5}", fit.aic, fit.r_squared), "-1005.8 0.99869");
    // The bounds that the document misstates: 18 to 22 ms of the intercept, 69 ± 28 ms of O_SYNC.
    let bounds =
        [intercept.low, intercept.high, sync.low, sync.high].map(|bound| format!("{:.1}", bound * 1e3));
    assert_eq!(bounds, ["5.1", "35.3", "50.2", "86.9"]);
    let dropped = fit.dropped.iter().find(|one| one.term == "block_size").unwrap();
    assert_eq!(format!("{:.2} {:.3}", dropped.f, dropped.p), "1.14 0.287");
}

#[test]
fn the_second_model_of_the_o_sync_study_comes_out_in_all_digits() {
    let fit = fit("sys ~ blocks * sync", ROWS).unwrap();
    let expected = [
        ["1.599e-2", "6.607e-3", "2.420"],
        ["1.143e-6", "3.024e-7", "3.779"],
        ["6.859e-2", "9.343e-3", "7.341"],
        ["2.010e-4", "4.277e-7", "469.898"],
    ];
    assert_eq!(printed(&fit), expected);
    assert_eq!(format!("{:.4} {}", fit.residual_deviance, fit.degrees_of_freedom), "7.6529 636");
    assert_eq!(format!("{:.1} {:.5}", fit.aic, fit.r_squared), "-1006.6 0.99869");
}

#[test]
fn forms_are_told_apart_by_rows_that_they_were_not_fitted_to() {
    // A power law: exact in logarithms, and in no other form.
    let rows = (1..=60).map(|x| format!("{x},{}\n", 3.0 * f64::from(x).powf(1.7))).collect::<String>();
    let measurements = Measurements::read(format!("x,y\n{rows}").as_bytes()).unwrap();
    let forms = compare(&Formula::parse("y ~ x").unwrap(), &measurements).unwrap();
    let of = |name: &str| forms.iter().find(|form| form.form == name).unwrap().median_relative_error;
    assert!(of("log_log") < 1e-9, "{forms:?}");
    assert!(of("relative") > 0.05 && of("least_squares") > 0.05, "{forms:?}");
    // Rows with a response of zero belong to the plain form alone.
    let measurements = Measurements::read(ROWS.as_bytes()).unwrap();
    let zeros = ROWS.lines().filter(|line| line.ends_with(",0.000")).count();
    let forms = compare(&Formula::parse("sys ~ blocks * sync").unwrap(), &measurements).unwrap();
    assert!(zeros > 0);
    assert_eq!(forms.iter().map(|form| form.rows).collect::<Vec<_>>(), [640, 640 - zeros, 640 - zeros]);
}

#[test]
fn formulas_mean_what_they_mean_in_r() {
    for (text, meaning) in [
        ("y ~ a * b", "y ~ a + b + a:b"),
        ("y~a:b+b + a", "y ~ b + a + a:b"),
        ("y ~ a * b * c", "y ~ a + b + c + a:b + a:c + b:c + a:b:c"),
        ("log(y) ~ I((a + 1) / b ^ 2) - 1", "log(y) ~ (a + 1) / (b ^ 2) + 0"),
        ("y ~ a + a", "y ~ a"),
        ("y ~ 1", "y ~ 1"),
        ("y ~ 0 + a", "y ~ a + 0"),
        ("y ~ I(a/b)", "y ~ a / b"),
        ("`Sys Time` ~ a", "Sys Time ~ a"),
    ] {
        assert_eq!(Formula::parse(text).unwrap().to_string(), meaning);
    }
    for (text, why) in [
        ("y", "response ~ term"),
        ("y ~", "name is missing"),
        ("y ~ a b", "`+` is missing"),
        ("y ~ 0", "nothing on its right side"),
        ("y ~ a - b", "only the intercept"),
        ("y ~ sin(a)", "no function `sin`"),
        ("y ~ log(a", "`)` is missing"),
        ("y ~ a $ b", "no meaning"),
        ("y ~ 1.2.3", "is no number"),
        ("y ~ `a", "has no end"),
    ] {
        let error = format!("{:#}", Formula::parse(text).expect_err(text));
        assert!(error.contains(why), "{text}: {error}");
    }
}

#[test]
fn tables_that_cannot_be_used_are_refused() {
    for (table, formula, why) in [
        ("", "y ~ x", "no rows"),
        (",y\n1,2\n", "y ~ x", "column 1 has no name"),
        ("x,y\n", "y ~ x", "no rows"),
        ("x,X \n1,2\n", "x ~ x", "two columns"),
        ("x,y\n1,2\n1,2,3\n", "y ~ x", "record 2"),
        ("x,y\n1,2\n2,3\n", "y ~ x", "2 rows cannot tell 2"),
        ("x,y\n1,2\n1,3\n1,4\n", "y ~ x", "`x` follows"),
        ("x,y\n1,2\n2,3\n3,4\n", "y ~ z", "there is no column `z`; the columns are x, y"),
        ("x,y\n1,a\n2,b\n3,b\n", "y ~ x", "`y` is text"),
        ("xa,xb,y\n1,2,3\n2,3,4\n", "y ~ x", "no column `x`"),
    ] {
        let error = format!("{:#}", fit(formula, table).expect_err(table));
        assert!(error.contains(why), "{table:?}, {formula}: {error}");
    }
    let numbers: String = (0..30).map(|x| format!("{x},{x}\n")).collect();
    let error = format!("{:#}", fit("y ~ x", &format!("x,y\n{numbers}abc,1\n")).unwrap_err());
    assert!(error.contains("`abc` in column `x`, row 31, is no number"), "{error}");
}

#[test]
fn missing_values_are_left_out_and_levels_become_switches() {
    let table = "kind;cost\na;1\na;1.2\nb;3\nb;3.2\nc;5\nc;NA\nc;5.4\n;9\n";
    let fit = fit("cost ~ kind", table).unwrap();
    assert_eq!((fit.rows, fit.missing_rows), (6, 2));
    let found: Vec<_> =
        fit.coefficients.iter().map(|one| (one.name.as_str(), (one.estimate * 1e3).round())).collect();
    assert_eq!(found, [("(Intercept)", 1100.0), ("kindb", 2000.0), ("kindc", 4100.0)]);
}

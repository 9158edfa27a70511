//! What the runs say: the document's models fitted to them, and the laws' errors in each cell.

use anyhow::Context;
use cawl_core::{HostProfile, median};
use serde::Serialize;

use super::grid::{Arm, Grid, Sizes};
use super::measure::{Made, Taken};
use super::predict::Predicted;
use crate::regress::{Fit, Form, Formula, Measurements, compare};

/// Eq. 4's form, a constant for each call and one for each byte, with errors of the time a call: those of the
/// wall time would be the largest runs' alone, and relative ones those of the luckiest.
const EQ4_FORM: &str = "I(wall / blocks) ~ block_size";

/// A cell: what its repetitions took, and what it was predicted to take, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Bytes that each call writes.
    pub block_size: u64,
    /// Bytes of the file.
    pub num_bytes: u64,
    /// Calls that write.
    pub blocks: u64,
    /// The arm.
    pub sync: Arm,
    /// Medians of the repetitions.
    #[serde(flatten)]
    pub taken: Taken,
    /// Half of the range of the repetitions' wall times, over their median.
    pub spread: f64,
    /// By the models, with the profile alone.
    pub predicted: Predicted,
    /// By the document's second model of the wall time, fitted to these runs; in its own arms.
    pub model_2: Option<f64>,
    /// By Eq. 4's form fitted to these runs, with O_SYNC.
    pub eq4_form: Option<f64>,
}

/// A law and what it says of a cell, in seconds.
pub type Law = (&'static str, fn(&Cell) -> Option<f64>);

/// The laws, in the order of the tables.
pub const LAWS: [Law; 6] = [
    ("kernel", |cell| Some(cell.predicted.kernel)),
    ("Eq. 4", |cell| cell.predicted.eq4),
    ("cawl", |cell| Some(cell.predicted.cawl)),
    ("naive", |cell| Some(cell.predicted.naive)),
    ("model 2, fitted here", |cell| cell.model_2),
    ("Eq. 4's form, fitted here", |cell| cell.eq4_form),
];

/// What stands beside the laws: half of the range of the repetitions.
pub const REPETITIONS: &str = "repetitions, half their range";

/// Errors of a law in an arm, over the observed wall times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    /// The arm.
    pub sync: Arm,
    /// The law.
    pub law: &'static str,
    /// Cells.
    pub cells: usize,
    /// Of them, those with an error of at most 10 %.
    pub within: usize,
    /// Median over the cells.
    pub median: f64,
    /// The largest.
    pub worst: f64,
}

/// A goal: the error of each cell.
pub const GOAL: f64 = 0.1;

/// All that the runs say.
#[derive(Debug, Serialize)]
pub struct Judged {
    /// By block size, file size and arm.
    pub cells: Vec<Cell>,
    /// The document's second model of system time, in its arms.
    pub sys: Fit,
    /// The document's second model of wall time, in its arms.
    pub wall: Fit,
    /// The document's second model of wall time, in all arms.
    pub wall_all: Fit,
    /// Eq. 4's form, with O_SYNC.
    pub eq4_form: Fit,
    /// The document's form of system time and others, in its arms.
    pub sys_forms: Vec<Form>,
    /// The document's form of wall time and others, in its arms.
    pub wall_forms: Vec<Form>,
    /// Of each law in each arm that it is about.
    pub errors: Vec<Errors>,
}

/// The runs as a table, in the order in which they were made; sizes in bytes, times in seconds.
pub fn csv<'a>(made: impl IntoIterator<Item = &'a Made>) -> String {
    let mut text = String::from("block_size,sync,num_bytes,wall,user,sys,repeat\n");
    for Made { block_size, sync, num_bytes, taken: Taken { wall, user, sys }, repeat, .. } in made {
        text += &format!("{block_size},{},{num_bytes},{wall:.9},{user:.6},{sys:.6},{repeat}\n", sync.name());
    }
    text
}

impl Judged {
    /// Fits and judges. `dev`: number of the device.
    pub fn of(made: &[Made], grid: &Grid, profile: &HostProfile, dev: u64) -> anyhow::Result<Judged> {
        let of_arms = |arms: &[Arm]| {
            Measurements::read(csv(made.iter().filter(|one| arms.contains(&one.sync))).as_bytes())
        };
        let fit = |formula: &str, rows: &Measurements| Fit::of(&Formula::parse(formula)?, rows);
        let forms = |formula: &str, rows: &Measurements| compare(&Formula::parse(formula)?, rows);
        let (document, synchronous) = (of_arms(&[Arm::None, Arm::OSync])?, of_arms(&[Arm::OSync])?);
        let (sys, wall) = ("sys ~ blocks * sync", "wall ~ blocks * sync");
        let mut judged = Judged {
            cells: Vec::new(),
            sys: fit(sys, &document)?,
            wall: fit(wall, &document)?,
            wall_all: fit(wall, &of_arms(&Arm::ALL)?)?,
            eq4_form: fit(EQ4_FORM, &synchronous)?,
            sys_forms: forms(sys, &document)?,
            wall_forms: forms(wall, &document)?,
            errors: Vec::new(),
        };
        for sizes in &grid.sizes {
            for sync in Arm::ALL {
                let cell = judged.cell(made, *sizes, sync, Predicted::of(*sizes, sync, profile, dev)?)?;
                judged.cells.push(cell);
            }
        }
        judged.errors = judged.all_errors();
        Ok(judged)
    }

    fn cell(&self, made: &[Made], sizes: Sizes, sync: Arm, predicted: Predicted) -> anyhow::Result<Cell> {
        let is_its =
            |one: &&Made| (one.block_size, one.num_bytes, one.sync) == (sizes.block.0, sizes.file.0, sync);
        let middle = |pick: fn(&Made) -> f64| {
            let values: Vec<f64> = made.iter().filter(is_its).map(pick).collect();
            median(&values).context("a cell without runs")
        };
        let walls = || made.iter().filter(is_its).map(|one| one.taken.wall);
        let range = walls().fold(0.0, f64::max) - walls().fold(f64::INFINITY, f64::min);
        let (block_size, num_bytes, blocks) = (sizes.block.0, sizes.file.0, sizes.blocks());
        Ok(Cell {
            block_size,
            num_bytes,
            blocks,
            sync,
            taken: Taken {
                wall: middle(|one| one.taken.wall)?,
                user: middle(|one| one.taken.user)?,
                sys: middle(|one| one.taken.sys)?,
            },
            spread: range / 2.0 / middle(|one| one.taken.wall)?,
            predicted,
            model_2: model_2(&self.wall, blocks as f64, sync),
            eq4_form: match &self.eq4_form.coefficients[..] {
                [call, byte] if sync == Arm::OSync => {
                    Some(call.estimate * blocks as f64 + byte.estimate * num_bytes as f64)
                }
                _ => None,
            },
        })
    }

    /// The cells of an arm.
    pub fn arm(&self, sync: Arm) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.sync == sync)
    }

    /// The sum over an arm's cells for each block written, in seconds.
    pub fn per_block(&self, sync: Arm, seconds: impl Fn(&Cell) -> f64) -> f64 {
        self.arm(sync).map(seconds).sum::<f64>() / self.arm(sync).map(|cell| cell.blocks).sum::<u64>() as f64
    }

    /// The errors of a law in an arm; None if it is not about that arm.
    pub fn errors_of(&self, sync: Arm, law: &str) -> Option<&Errors> {
        self.errors.iter().find(|one| one.sync == sync && one.law == law)
    }

    fn all_errors(&self) -> Vec<Errors> {
        let of_arm = |sync: Arm| {
            let of_law = |(law, says): Law| {
                let errors = self.arm(sync).filter_map(|cell| Some(error(cell, says(cell)?).abs()));
                Errors::of(sync, law, &errors.collect::<Vec<_>>())
            };
            let spreads: Vec<f64> = self.arm(sync).map(|cell| cell.spread).collect();
            LAWS.into_iter().map(of_law).chain([Errors::of(sync, REPETITIONS, &spreads)]).collect::<Vec<_>>()
        };
        Arm::ALL.into_iter().flat_map(of_arm).flatten().collect()
    }
}

impl Errors {
    /// None without errors.
    fn of(sync: Arm, law: &'static str, errors: &[f64]) -> Option<Errors> {
        Some(Errors {
            sync,
            law,
            cells: errors.len(),
            within: errors.iter().filter(|error| **error <= GOAL).count(),
            median: median(errors)?,
            worst: errors.iter().copied().fold(0.0, f64::max),
        })
    }
}

/// Predicted less observed wall time, over the observed one.
pub fn error(cell: &Cell, predicted: f64) -> f64 {
    predicted / cell.taken.wall - 1.0
}

/// The document's second model of so many blocks, in its arms.
fn model_2(fit: &Fit, blocks: f64, sync: Arm) -> Option<f64> {
    let [intercept, block, arm, block_of_arm] = &fit.coefficients[..] else { return None };
    let plain = intercept.estimate + block.estimate * blocks;
    match sync {
        Arm::None => Some(plain),
        Arm::OSync => Some(plain + arm.estimate + block_of_arm.estimate * blocks),
        Arm::ODsync | Arm::Fsync => None,
    }
}

#[cfg(test)]
mod tests {
    use cawl_core::Bytes;

    use super::*;

    /// Runs that take exactly this, in seconds.
    fn judged(wall: impl Fn(Sizes, Arm) -> f64) -> Judged {
        let grid = Grid::new(true, None);
        let made = grid.runs().into_iter().map(|run| {
            let wall = wall(run.sizes, run.sync);
            // No two repetitions are the same.
            let taken = Taken { wall: wall * (1.0 + 1e-6 * run.repeat as f64), user: 0.0, sys: wall / 4.0 };
            Made::of(&run, taken)
        });
        Judged::of(&made.collect::<Vec<_>>(), &grid, &HostProfile::uncalibrated(), 1).unwrap()
    }

    #[test]
    fn eq_4s_form_is_found_again() {
        let judged = judged(|sizes, sync| match sync {
            Arm::OSync | Arm::ODsync => 223e-6 * sizes.blocks() as f64 + 3.18e-9 * sizes.file.as_f64(),
            _ => 1e-6 * sizes.blocks() as f64 + 1e-3,
        });
        let [call, byte] = &judged.eq4_form.coefficients[..] else { panic!("{:?}", judged.eq4_form) };
        assert!((call.estimate / 223e-6 - 1.0).abs() < 1e-4, "{call:?}");
        assert!((byte.estimate / 3.18e-9 - 1.0).abs() < 1e-4, "{byte:?}");
        let form = judged.errors_of(Arm::OSync, "Eq. 4's form, fitted here").unwrap();
        assert!(form.within == 9 && form.worst < 1e-3, "{form:?}");
        // Blocks alone do not tell it.
        let model = judged.errors_of(Arm::OSync, "model 2, fitted here").unwrap();
        assert!(model.worst > GOAL, "{model:?}");
        assert_eq!(judged.errors_of(Arm::Fsync, "Eq. 4"), None);
        assert_eq!(judged.arm(Arm::OSync).count(), 9);
    }

    #[test]
    fn model_2_is_found_again() {
        let judged = judged(|sizes, sync| match sync {
            Arm::OSync => 0.07 + 200e-6 * sizes.blocks() as f64,
            _ => 0.001 + 1e-6 * sizes.blocks() as f64,
        });
        let names: Vec<&str> = judged.sys.coefficients.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["(Intercept)", "blocks", "synco_sync", "blocks:synco_sync"]);
        for sync in [Arm::None, Arm::OSync] {
            let model = judged.errors_of(sync, "model 2, fitted here").unwrap();
            assert!(model.worst < 1e-3, "{model:?}");
        }
        let sys = judged.per_block(Arm::OSync, |cell| cell.taken.sys);
        assert!(sys > 50e-6 && sys < 100e-6, "{sys}");
    }

    #[test]
    fn the_table_of_runs_is_one_for_regress() {
        let taken = Taken { wall: 0.5, user: 0.0, sys: 0.25 };
        let run = Made {
            block_size: Bytes::kib(4).0,
            sync: Arm::ODsync,
            num_bytes: Bytes::mib(1).0,
            taken,
            unaccounted: taken.unaccounted(),
            repeat: 1,
        };
        let text = csv(&[run]);
        assert_eq!(
            text,
            "block_size,sync,num_bytes,wall,user,sys,repeat\n4096,o_dsync,1048576,0.500000000,0.000000,0.250000,1\n"
        );
    }
}

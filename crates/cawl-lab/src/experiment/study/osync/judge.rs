//! What the runs say: the document's models fitted to them, and the laws' errors in each cell.

use anyhow::Context;
use cawl_core::{HostProfile, MODELS, median};
use serde::Serialize;

use super::{Arm, Cell, Predicted, Taken};
use crate::regress::{Fit, Form, Formula, Measurements, compare};

/// Eq. 4's form, a constant for each call and one for each byte, with errors of the time a call: those of the
/// wall time would be the largest runs' alone, and relative ones those of the luckiest.
const EQ4_FORM: &str = "I(wall / blocks) ~ block_size";

/// A cell: what its repetitions took, and what it was predicted to take, in seconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    #[serde(flatten)]
    pub cell: Cell,
    /// Calls that write.
    pub blocks: u64,
    /// Medians of the repetitions.
    #[serde(flatten)]
    pub taken: Taken,
    /// Half of the range of the repetitions' wall times, over their median.
    pub spread: f64,
    /// With the profile alone.
    pub predicted: Predicted,
    /// By the document's second model of the wall time, fitted to these runs; in its own arms.
    pub model_2: Option<f64>,
    /// By Eq. 4's form fitted to these runs, with O_SYNC.
    pub eq4_form: Option<f64>,
}

pub const EQ4: &str = "Eq. 4";
pub const MODEL_2: &str = "model 2, fitted here";
pub const FITTED_EQ4: &str = "Eq. 4's form, fitted here";
/// What stands beside the laws: half of the range of the repetitions.
const REPETITIONS: &str = "repetitions, half their range";

/// The laws in the order of the tables, and what stands beside them.
pub fn laws() -> Vec<&'static str> {
    let (first, rest) = MODELS.split_at(1);
    [first, &[EQ4], rest, &[MODEL_2, FITTED_EQ4, REPETITIONS]].concat()
}

impl Outcome {
    /// What a law says, in seconds; None if it is not about this arm.
    pub fn says(&self, law: &str) -> Option<f64> {
        match law {
            EQ4 => self.predicted.eq4,
            MODEL_2 => self.model_2,
            FITTED_EQ4 => self.eq4_form,
            model => Some(self.predicted.models.get(model)),
        }
    }

    /// What a law says less the observed wall time, over that.
    pub fn error(&self, law: &str) -> Option<f64> {
        match law {
            REPETITIONS => Some(self.spread),
            law => Some(self.says(law)? / self.taken.wall - 1.0),
        }
    }
}

/// Errors of a law in an arm, over the observed wall times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Errors {
    pub sync: Arm,
    pub law: &'static str,
    pub cells: usize,
    /// Cells with an error of at most 10 %.
    pub within: usize,
    pub median: f64,
    pub worst: f64,
}

/// A goal: the error of each cell.
pub const GOAL: f64 = 0.1;

/// All that the runs say.
#[derive(Debug, Serialize)]
pub struct Judged {
    pub cells: Vec<Outcome>,
    /// The document's second model of system time, in its arms; and of wall time, in these and in all arms.
    pub sys: Fit,
    pub wall: Fit,
    pub wall_all: Fit,
    /// Eq. 4's form, with O_SYNC.
    pub eq4_form: Fit,
    /// The document's form of system and of wall time, and others, in its arms.
    pub sys_forms: Vec<Form>,
    pub wall_forms: Vec<Form>,
    /// Of each law in each arm that it is about.
    pub errors: Vec<Errors>,
}

/// A run that was made.
#[derive(Serialize)]
pub struct Row {
    #[serde(flatten)]
    cell: Cell,
    #[serde(flatten)]
    taken: Taken,
    /// Wall time less user and system time, in seconds.
    unaccounted: f64,
    /// Which repetition it was, from 1.
    repeat: usize,
}

/// The runs in the order in which they were made.
pub fn rows(runs: &[(Cell, Taken)]) -> Vec<Row> {
    let row = |(at, (cell, taken)): (usize, &(Cell, Taken))| Row {
        cell: *cell,
        taken: *taken,
        unaccounted: taken.unaccounted(),
        repeat: runs[..=at].iter().filter(|(its, _)| its == cell).count(),
    };
    runs.iter().enumerate().map(row).collect()
}

/// The runs as a table; sizes in bytes, times in seconds.
pub fn csv(runs: &[(Cell, Taken)]) -> String {
    let mut text = String::from("block_size,sync,num_bytes,wall,user,sys,repeat\n");
    for Row { cell: Cell { block_size, num_bytes, sync }, taken, repeat, .. } in rows(runs) {
        let Taken { wall, user, sys } = taken;
        text += &format!("{block_size},{},{num_bytes},{wall:.9},{user:.6},{sys:.6},{repeat}\n", sync.name());
    }
    text
}

impl Judged {
    /// Fits and judges. `dev`: number of the device.
    pub fn of(
        runs: &[(Cell, Taken)],
        cells: &[Cell],
        profile: &HostProfile,
        dev: u64,
    ) -> anyhow::Result<Judged> {
        let of_arms = |arms: &[Arm]| {
            let kept: Vec<_> = runs.iter().filter(|(cell, _)| arms.contains(&cell.sync)).copied().collect();
            Measurements::read(csv(&kept).as_bytes())
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
        let outcomes = cells.iter().map(|cell| judged.outcome(runs, *cell, profile, dev));
        judged.cells = outcomes.collect::<anyhow::Result<_>>()?;
        for sync in Arm::ALL {
            let errors: Vec<Errors> = laws().iter().filter_map(|law| judged.errors_of(sync, law)).collect();
            judged.errors.extend(errors);
        }
        Ok(judged)
    }

    fn outcome(
        &self,
        runs: &[(Cell, Taken)],
        cell: Cell,
        profile: &HostProfile,
        dev: u64,
    ) -> anyhow::Result<Outcome> {
        let its: Vec<&Taken> =
            runs.iter().filter(|(known, _)| *known == cell).map(|(_, taken)| taken).collect();
        let middle = |pick: fn(&Taken) -> f64| {
            let values: Vec<f64> = its.iter().map(|taken| pick(taken)).collect();
            median(&values).context("a cell without runs")
        };
        let walls = || its.iter().map(|taken| taken.wall);
        let range = walls().fold(0.0, f64::max) - walls().fold(f64::INFINITY, f64::min);
        let [wall, user, sys] =
            [middle(|taken| taken.wall)?, middle(|taken| taken.user)?, middle(|taken| taken.sys)?];
        let blocks = cell.blocks();
        Ok(Outcome {
            cell,
            blocks,
            taken: Taken { wall, user, sys },
            spread: range / 2.0 / wall,
            predicted: Predicted::of(cell, profile, dev)?,
            model_2: model_2(&self.wall, blocks as f64, cell.sync),
            eq4_form: match &self.eq4_form.coefficients[..] {
                [call, byte] if cell.sync == Arm::OSync => {
                    Some(call.estimate * blocks as f64 + byte.estimate * cell.num_bytes as f64)
                }
                _ => None,
            },
        })
    }

    /// The cells of an arm.
    pub fn arm(&self, sync: Arm) -> impl Iterator<Item = &Outcome> {
        self.cells.iter().filter(move |one| one.cell.sync == sync)
    }

    /// The sum over an arm's cells for each block written, in seconds.
    pub fn per_block(&self, sync: Arm, seconds: impl Fn(&Outcome) -> f64) -> f64 {
        self.arm(sync).map(seconds).sum::<f64>() / self.arm(sync).map(|cell| cell.blocks).sum::<u64>() as f64
    }

    /// The errors of a law in an arm; None if it is not about that arm.
    pub fn errors_of(&self, sync: Arm, law: &'static str) -> Option<Errors> {
        let errors: Vec<f64> = self.arm(sync).filter_map(|cell| Some(cell.error(law)?.abs())).collect();
        Some(Errors {
            sync,
            law,
            cells: errors.len(),
            within: errors.iter().filter(|error| **error <= GOAL).count(),
            median: median(&errors)?,
            worst: errors.iter().copied().fold(0.0, f64::max),
        })
    }
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
    use super::super::Osync;
    use super::*;

    /// Runs that take exactly this, in seconds.
    fn judged(wall: impl Fn(Cell) -> f64) -> Judged {
        let study = Osync::new(true, None);
        let of_repeat = |repeat: u32| study.cells.iter().map(move |cell| (repeat, *cell));
        let runs = (1..=2).flat_map(of_repeat).map(|(repeat, cell)| {
            // No two repetitions are the same.
            let wall = wall(cell);
            (cell, Taken { wall: wall * (1.0 + 1e-6 * f64::from(repeat)), user: 0.0, sys: wall / 4.0 })
        });
        let runs: Vec<_> = runs.collect();
        Judged::of(&runs, &study.cells, &HostProfile::uncalibrated(), 1).unwrap()
    }

    #[test]
    fn eq_4s_form_is_found_again() {
        let judged = judged(|cell| match cell.sync {
            Arm::OSync | Arm::ODsync => 223e-6 * cell.blocks() as f64 + 3.18e-9 * cell.num_bytes as f64,
            _ => 1e-6 * cell.blocks() as f64 + 1e-3,
        });
        let [call, byte] = &judged.eq4_form.coefficients[..] else { panic!("{:?}", judged.eq4_form) };
        assert!((call.estimate / 223e-6 - 1.0).abs() < 1e-4, "{call:?}");
        assert!((byte.estimate / 3.18e-9 - 1.0).abs() < 1e-4, "{byte:?}");
        let form = judged.errors_of(Arm::OSync, FITTED_EQ4).unwrap();
        assert!(form.within == 9 && form.worst < 1e-3, "{form:?}");
        // Blocks alone do not tell it.
        let model = judged.errors_of(Arm::OSync, MODEL_2).unwrap();
        assert!(model.worst > GOAL, "{model:?}");
        assert_eq!(judged.errors_of(Arm::Fsync, EQ4), None);
        assert_eq!(judged.arm(Arm::OSync).count(), 9);
    }

    #[test]
    fn model_2_is_found_again() {
        let judged = judged(|cell| match cell.sync {
            Arm::OSync => 0.07 + 200e-6 * cell.blocks() as f64,
            _ => 0.001 + 1e-6 * cell.blocks() as f64,
        });
        let names: Vec<&str> = judged.sys.coefficients.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["(Intercept)", "blocks", "synco_sync", "blocks:synco_sync"]);
        for sync in [Arm::None, Arm::OSync] {
            let model = judged.errors_of(sync, MODEL_2).unwrap();
            assert!(model.worst < 1e-3, "{model:?}");
        }
        let sys = judged.per_block(Arm::OSync, |cell| cell.taken.sys);
        assert!(sys > 50e-6 && sys < 100e-6, "{sys}");
    }

    #[test]
    fn the_table_of_runs_is_one_for_regress() {
        let cell = Cell { block_size: 4 << 10, num_bytes: 1 << 20, sync: Arm::ODsync };
        let text = csv(&[(cell, Taken { wall: 0.5, user: 0.0, sys: 0.25 })]);
        assert_eq!(
            text,
            "block_size,sync,num_bytes,wall,user,sys,repeat\n4096,o_dsync,1048576,0.500000000,0.000000,0.250000,1\n"
        );
    }
}

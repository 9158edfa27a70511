//! A modelled machine: that of libcawl (cawl-ffi), which knows files and descriptors.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use cawl::cause::PLACE;
use cawl::cost::{cawl_cost, cawl_levels};
use cawl::machine::{self, cawl_file, cawl_machine, cawl_task};
use cawl::status::{Failure, Outcome};
use cawl_core::{Bytes, Cause, DirtyLimits, HostProfile, dirtyable};
use cawl_wire::Op;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rustc_hash::FxHashMap;

use crate::Error;

#[allow(clippy::boxed_local, reason = "as libcawl gives it")]
fn told(failure: Box<Failure>) -> PyErr {
    let meaning = cawl::status::text_of(failure.status);
    Error::new_err(match failure.detail.as_str() {
        "" => meaning.to_owned(),
        detail => format!("{meaning}: {detail}"),
    })
}

/// A profile as text (TOML): of a file or a text, with the limits of so much memory, and with changes.
#[pyfunction]
#[pyo3(signature = (profile = None, ram = None, ratios = None, changes = ""))]
pub fn profile(
    profile: Option<&str>,
    ram: Option<u64>,
    ratios: Option<[f64; 2]>,
    changes: &str,
) -> PyResult<String> {
    let mut of = match profile {
        None => HostProfile::uncalibrated(),
        Some(text) if text.contains('\n') => parsed(text)?,
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                std::io::Error::new(error.kind(), format!("cannot read the profile {path}: {error}"))
            })?;
            parsed(&text)
                .map_err(|error| Error::new_err(format!("{}: {error}", Path::new(path).display())))?
        }
    };
    if let Some(ram) = ram {
        let ratios = ratios.unwrap_or(DirtyLimits::DEFAULT_RATIOS);
        of.kernel.limits = DirtyLimits::of(ratios, dirtyable(Bytes(ram), of.kernel.page));
        of.check().map_err(|error| {
            PyValueError::new_err(format!("{} of memory are no machine: {error}", Bytes(ram)))
        })?;
    }
    cawl::handles::changed(&of, changes).map(|of| of.to_toml()).map_err(told)
}

fn parsed(text: &str) -> PyResult<HostProfile> {
    HostProfile::from_toml(text)
        .map_err(|error| Error::new_err(format!("{error}; `cawl-cli profile show` prints a valid profile")))
}

/// What a call costs.
#[pyclass(frozen, module = "cawl")]
pub struct Cost(cawl_cost);

#[pymethods]
impl Cost {
    #[getter]
    fn cost_ns(&self) -> f64 {
        self.0.cost_ns
    }

    #[getter]
    fn seconds(&self) -> f64 {
        self.0.cost_ns / 1e9
    }

    #[getter]
    fn low_ns(&self) -> f64 {
        self.0.low_ns
    }

    #[getter]
    fn high_ns(&self) -> f64 {
        self.0.high_ns
    }

    #[getter]
    fn end_ns(&self) -> u64 {
        self.0.end_ns
    }

    #[getter]
    fn bytes(&self) -> u64 {
        self.0.bytes
    }

    #[getter]
    fn dirty_bytes(&self) -> u64 {
        self.0.dirty_bytes
    }

    #[getter]
    fn state(&self) -> Option<&'static str> {
        const STATES: [&str; 6] = ["free", "flush", "throttle", "sync", "read", "buffered"];
        STATES.get((self.0.state as usize).wrapping_sub(1)).copied()
    }

    /// The parts that are not 0, by cause, in ns.
    #[getter]
    fn parts_ns<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parts = PyDict::new(py);
        for (cause, place) in Cause::ALL.into_iter().zip(PLACE) {
            let part = self.0.parts_ns[usize::from(place)];
            if part > 0.0 {
                parts.set_item(cause.name(), part)?;
            }
        }
        Ok(parts)
    }

    fn __repr__(&self) -> String {
        let parts = Cause::ALL
            .into_iter()
            .zip(PLACE)
            .map(|(cause, place)| (self.0.parts_ns[usize::from(place)], cause));
        let main = parts.filter(|(part, _)| *part > 0.0).max_by(|a, b| a.0.total_cmp(&b.0));
        let main = main.map_or(String::new(), |(_, cause)| format!(", mostly {}", cause.name()));
        format!("Cost({:.3} us{main})", self.0.cost_ns / 1e3)
    }
}

/// The machine under cawl.Model, which adds what is convenient.
#[pyclass(subclass, module = "cawl")]
pub struct Machine {
    /// Python's threads may share it; the lock of a `&mut self` costs nothing.
    machine: Mutex<cawl_machine>,
    /// When the latest call began, and when each thread's latest ended, in ns.
    latest: u64,
    ends: FxHashMap<(u32, u32), u64>,
}

/// Who makes a call, and when.
#[derive(FromPyObject)]
struct By(u32, u32, Option<u64>);

impl Machine {
    /// One whose model panicked refuses calls by itself.
    fn machine(&mut self) -> &mut cawl_machine {
        self.machine.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(
        &mut self,
        By(process, thread, now): By,
        call: impl FnOnce(&mut cawl_machine, cawl_task, u64, &mut cawl_cost) -> Outcome<T>,
    ) -> PyResult<(T, Cost)> {
        let key = (process, thread);
        let now = now.unwrap_or_else(|| self.ends.get(&key).copied().unwrap_or(0).max(self.latest));
        let mut cost = cawl_cost::default();
        let result = call(self.machine(), cawl_task { process, thread }, now, &mut cost).map_err(told)?;
        self.latest = now;
        self.ends.insert(key, cost.end_ns);
        Ok((result, Cost(cost)))
    }
}

fn file(device: u64, inode: u64) -> cawl_file {
    cawl_file { device, inode }
}

#[pymethods]
impl Machine {
    #[new]
    fn new(profile: &str, model: &str) -> PyResult<Machine> {
        let machine = cawl_machine::new(&parsed(profile)?, model).map_err(told)?;
        Ok(Machine { machine: Mutex::new(machine), latest: 0, ends: FxHashMap::default() })
    }

    fn _fork(&mut self) -> PyResult<Machine> {
        let machine = Mutex::new(self.machine().fork().map_err(told)?);
        Ok(Machine { machine, latest: self.latest, ends: self.ends.clone() })
    }

    fn _advance(&mut self, now: u64) -> PyResult<()> {
        self.machine().advance(now).map_err(told)?;
        self.latest = self.latest.max(now);
        Ok(())
    }

    /// Regime, time, dirty, background, hard, rate of writeback, rate of throttled writers.
    fn _level(&mut self) -> PyResult<(&'static str, u64, u64, u64, u64, f64, f64)> {
        let mut levels = cawl_levels::default();
        self.machine().with_model(|model| levels.fill(model)).map_err(told)?;
        let regime = ["free", "flush", "throttle"][levels.regime as usize % 3];
        let cawl_levels { time_ns, dirty_bytes, background_bytes, hard_bytes, .. } = levels;
        let rates = (levels.writeback_bytes_per_s, levels.throttled_bytes_per_s);
        Ok((regime, time_ns, dirty_bytes, background_bytes, hard_bytes, rates.0, rates.1))
    }

    fn _add_file(&mut self, device: u64, inode: u64, size: u64, cached: bool) -> PyResult<()> {
        self.machine().add_file(file(device, inode), size, cached).map_err(told)
    }

    fn _open(&mut self, by: By, device: u64, inode: u64, opened: u32) -> PyResult<(i32, Cost)> {
        self.call(by, |machine, task, now, cost| machine.open(task, file(device, inode), opened, now, cost))
    }

    fn _close(&mut self, by: By, fd: i32) -> PyResult<Cost> {
        Ok(self.call(by, |machine, task, now, cost| machine.close(task, fd, now, cost))?.1)
    }

    #[pyo3(signature = (by, op, fd, bytes, at = None))]
    fn _write(&mut self, by: By, op: &str, fd: i32, bytes: u64, at: Option<u64>) -> PyResult<Cost> {
        let op = op_of(op)?;
        Ok(self.call(by, |machine, task, now, cost| machine.write(op, (task, fd), bytes, at, now, cost))?.1)
    }

    #[pyo3(signature = (by, fd, bytes, at = None))]
    fn _read(&mut self, by: By, fd: i32, bytes: u64, at: Option<u64>) -> PyResult<Cost> {
        Ok(self.call(by, |machine, task, now, cost| machine.read((task, fd), bytes, at, now, cost))?.1)
    }

    fn _flush(&mut self, by: By, op: &str, fd: i32) -> PyResult<Cost> {
        let op = op_of(op)?;
        Ok(self.call(by, |machine, task, now, cost| machine.flush(op, (task, fd), now, cost))?.1)
    }

    fn _seek(&mut self, fd: i32, offset: u64) -> PyResult<()> {
        self.machine().seek(fd, offset).map_err(told)
    }

    fn _truncate(&mut self, by: By, device: u64, inode: u64, size: u64) -> PyResult<Cost> {
        let of = file(device, inode);
        Ok(self.call(by, |machine, task, now, cost| machine.truncate(task, of, size, now, cost))?.1)
    }

    fn _unlink(&mut self, by: By, device: u64, inode: u64) -> PyResult<Cost> {
        Ok(self.call(by, |machine, task, now, cost| machine.unlink(task, file(device, inode), now, cost))?.1)
    }

    /// The bits of libcawl's `cawl_open` by name.
    #[classattr]
    fn _open_bits() -> Vec<(&'static str, u32)> {
        vec![
            ("read", machine::CAWL_READ),
            ("write", machine::CAWL_WRITE),
            ("create", machine::CAWL_CREATE),
            ("truncate", machine::CAWL_TRUNCATE),
            ("append", machine::CAWL_APPEND),
            ("sync", machine::CAWL_SYNC),
            ("dsync", machine::CAWL_DSYNC),
            ("direct", machine::CAWL_DIRECT),
            ("stream", machine::CAWL_STREAM),
        ]
    }
}

fn op_of(name: &str) -> PyResult<Op> {
    let found = Op::ALL.iter().find(|op| op.name() == name);
    found.copied().ok_or_else(|| PyValueError::new_err(format!("there is no operation `{name}`")))
}

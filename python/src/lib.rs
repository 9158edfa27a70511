//! The Rust part of the Python package `cawl`: traces as Arrow tables, and the models of libcawl.
//!
//! docs/reference/PYTHON.md is the page for users. What needs the command line (`run`, `explain`, `whatif`,
//! `advise`), draws or is shown in a notebook is Python, in the folder cawl beside this.
//!
//! PyO3 turns a panic into an exception; a trace and a profile are checked before anything is done with them.
#![allow(missing_docs, reason = "Python sees the docstrings in cawl/_cawl.pyi")]

mod columns;
mod model;
mod table;
mod trace;

use pyo3::prelude::*;

pyo3::create_exception!(
    cawl,
    Error,
    pyo3::exceptions::PyException,
    "What went wrong, and what to do about it."
);

#[pymodule]
fn _cawl(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<table::Table>()?;
    module.add_class::<model::Machine>()?;
    module.add_class::<model::Cost>()?;
    module.add_function(wrap_pyfunction!(trace::read, module)?)?;
    module.add_function(wrap_pyfunction!(trace::causes, module)?)?;
    module.add_function(wrap_pyfunction!(model::profile, module)?)
}

//! Languages whose libraries buffer what a program writes.

use serde::{Deserialize, Serialize};

/// A language whose library buffers what a program writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Language {
    /// C++.
    #[serde(rename = "C++")]
    Cpp,
    /// Python.
    Python,
    /// Java, and what else runs in its virtual machine.
    Java,
    /// Go.
    Go,
}

impl Language {
    /// That of an interpreter or virtual machine, by the name that it was started by.
    pub fn of_program(program: &str) -> Option<Language> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let is_version = |version: &str| version.chars().all(|c| c.is_ascii_digit() || c == '.' || c == 't');
        match name.strip_prefix("python") {
            Some(version) if is_version(version) => Some(Language::Python),
            _ => (name == "java").then_some(Language::Java),
        }
    }

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Language::Cpp => "C++",
            Language::Python => "Python",
            Language::Java => "Java",
            Language::Go => "Go",
        }
    }
}

//! Workflows on paper.

use super::*;

//! schedspan.
#![deny(unsafe_code)]
pub mod cli;
pub mod plan;
pub mod target;

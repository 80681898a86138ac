//! Compares schedspan's spans with those that the scheduler makes itself of the same calls.

pub mod command;
pub(crate) mod test;

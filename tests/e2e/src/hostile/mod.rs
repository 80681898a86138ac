//! Attacks on schedspan, and what becomes of them.

mod fakes;
pub(crate) mod files;
mod fuse;
pub(crate) mod trust;

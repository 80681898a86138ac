//! Folders.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The folder of the workspace.
pub fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Cargo's target folder.
pub fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository().join("target"), PathBuf::from)
}

/// schedspan's folder in the user's cache folder: `$XDG_CACHE_HOME/schedspan` or `~/.cache/schedspan`.
///
/// # Errors
///
/// If neither `XDG_CACHE_HOME` nor `HOME` is set.
pub fn cache() -> Result<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = cache.or_else(|| env::home_dir().map(|home| home.join(".cache")));
    Ok(cache.context("no folder for caches: set HOME or XDG_CACHE_HOME")?.join("schedspan"))
}

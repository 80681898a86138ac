//! What takes long to make, and is made once.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use crate::paths;

/// A file or folder in the cache folder, which `make` makes where it is told if it is not there yet. `of` is everything that
/// decides what it will be.
///
/// # Errors
///
/// Those of `make`, and if the cache folder cannot be written.
pub(super) fn cached(
    name: &str,
    of: &(impl Hash + ?Sized),
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let cache = paths::cache()?.join("kind");
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let path = cache.join(format!("{name}-{:016x}", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Held until the end: another xtask waits here, and then finds it.
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    if path.exists() {
        return Ok(path);
    }
    let partial = cache.join(format!("{name}.partial"));
    // What an interrupted xtask left.
    if partial.is_dir() {
        fs::remove_dir_all(&partial)?;
    }
    make(&partial)?;
    fs::rename(&partial, &path)?;
    Ok(path)
}

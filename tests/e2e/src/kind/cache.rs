//! Files that take long to make, kept in the cache folder.

use std::{
    fs::{self, File},
    hash::{DefaultHasher, Hash, Hasher as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use xtask::paths;

/// A file or folder in the cache folder. If it is missing, `make` creates it at the given path. `of` is everything that it depends
/// on.
///
/// # Errors
///
/// Those of `make`, and if the cache folder cannot be written.
pub(super) fn cached(
    name: &str,
    of: &(impl Hash + ?Sized),
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    cached_in(&paths::cache()?.join("kind"), name, of, make)
}

fn cached_in(
    cache: &Path,
    name: &str,
    of: &(impl Hash + ?Sized),
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    let path = cache.join(format!("{name}-{:016x}", hasher.finish()));
    if path.exists() {
        return Ok(path);
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create {}", cache.display()))?;
    // Another process waits here, and then finds it.
    let lock = File::create(cache.join(format!("{name}.lock")))?;
    lock.lock()?;
    if path.exists() {
        return Ok(path);
    }
    let partial = cache.join(format!("{name}.partial"));
    // An interrupted process leaves one.
    if partial.is_dir() {
        fs::remove_dir_all(&partial)?;
    }
    make(&partial)?;
    fs::rename(&partial, &path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn a_cached_file_is_reused_until_its_inputs_change() {
        let cache = std::env::temp_dir().join(format!("xtask-cache-{}", std::process::id()));
        let make = |of: &str| cached_in(&cache, "thing", of, |path| Ok(fs::write(path, of)?));
        let first = make("a").unwrap();
        assert_eq!(cached_in(&cache, "thing", "a", |_| bail!("made again")).unwrap(), first);
        assert_ne!(make("b").unwrap(), first);
        assert_eq!(fs::read_to_string(first).unwrap(), "a");
        fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn a_failed_attempt_leaves_no_file() {
        let cache = std::env::temp_dir().join(format!("xtask-no-cache-{}", std::process::id()));
        let fail = |path: &Path| {
            fs::create_dir(path)?;
            bail!("half done")
        };
        assert!(cached_in(&cache, "thing", "a", fail).is_err());
        let made = cached_in(&cache, "thing", "a", |path| Ok(fs::write(path, "whole")?)).unwrap();
        assert_eq!(fs::read_to_string(made).unwrap(), "whole");
        fs::remove_dir_all(cache).unwrap();
    }
}

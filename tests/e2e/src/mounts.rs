//! File systems of a test's own.

use std::{
    ffi::CStr,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// A mounted file system, and its folder. It is unmounted when it is dropped.
pub(crate) struct Mount(pub(crate) PathBuf);

impl Mount {
    /// Mounts a file system in memory, with options such as `size=1m`, on a new folder.
    pub(crate) fn tmpfs(dir: &Path, name: &str, options: &CStr) -> Result<Self> {
        let dir = dir.join(name);
        fs::create_dir(&dir)?;
        mount("tmpfs", &dir, "tmpfs", MountFlags::empty(), options)?;
        Ok(Self(dir))
    }

    /// The files in the folder `image`, with changes in a folder on the same file system, as in a container.
    pub(crate) fn overlay(dir: &Path, name: &str) -> Result<Self> {
        let lower = dir.join("image");
        let [dir, upper, work] = ["", "-upper", "-work"].map(|part| dir.join(format!("{name}{part}")));
        for dir in [&dir, &upper, &work] {
            fs::create_dir(dir)?;
        }
        let options =
            format!("lowerdir={},upperdir={},workdir={}\0", lower.display(), upper.display(), work.display());
        mount(
            "overlay",
            &dir,
            "overlay",
            MountFlags::empty(),
            CStr::from_bytes_with_nul(options.as_bytes())?,
        )?;
        Ok(Self(dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH); // It is mounted for this test alone.
    }
}

//! A folder of the user alone, with the kubeconfig of one command.

use std::{
    env, fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use serde_json::json;

use crate::context::random;

/// The folder; removed when dropped.
pub(crate) struct Home(PathBuf);

impl Home {
    /// Makes it, with a kubeconfig for this server and namespace.
    pub(crate) fn new(server: &str, namespace: &str) -> io::Result<Self> {
        let path = env::temp_dir().join(format!("schedspan-traced-{}", random::<8>()?));
        // Fails if it exists: nothing of another user is written to.
        fs::DirBuilder::new().mode(0o700).create(&path)?;
        let home = Self(path);
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "traced",
            "contexts": [{"name": "traced", "context": {"cluster": "traced", "user": "traced", "namespace": namespace}}],
            "clusters": [{"name": "traced", "cluster": {"server": server}}],
            "users": [{"name": "traced", "user": {}}],
        });
        let mut file =
            fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(home.kubeconfig())?;
        file.write_all(kubeconfig.to_string().as_bytes())?;
        Ok(home)
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    /// Where kubectl keeps what it knows about the API: not for long, because the address changes.
    pub(crate) fn cache(&self) -> PathBuf {
        self.0.join("cache")
    }

    #[cfg(test)]
    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let path: &Path = &self.0;
        // What stays is of no use to anyone: its server has ended.
        let _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_its_user_reads_it_and_nothing_is_left() {
        let home = Home::new("http://127.0.0.1:1/secret", "shop").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(home.path()), mode(&home.kubeconfig())), (0o700, 0o600));
        let text = fs::read_to_string(home.kubeconfig()).unwrap();
        assert!(
            text.contains("http://127.0.0.1:1/secret") && text.contains(r#""namespace":"shop""#),
            "{text}"
        );
        let path = home.path().to_owned();
        drop(home);
        assert!(!path.exists());
    }
}

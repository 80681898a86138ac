//! The version, and what CHANGELOG.md says about it: <https://keepachangelog.com/en/1.1.0/>.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use xtask::paths;

/// The version of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const CHANGELOG: &str = "CHANGELOG.md";

/// The version of the workspace, if it is the one that is asked for.
pub(crate) fn agreed(asked: Option<&str>) -> Result<String> {
    let asked = asked.unwrap_or(VERSION);
    ensure!(
        asked == VERSION,
        "the workspace has version {VERSION}, not {asked}: change `version` in Cargo.toml and in the chart, `cargo check`, commit"
    );
    Ok(asked.to_owned())
}

/// The section of this version.
///
/// # Errors
///
/// If there is none, or it is empty.
pub(crate) fn notes(version: &str) -> Result<String> {
    let text = fs::read_to_string(paths::repository().join(CHANGELOG))
        .with_context(|| format!("cannot read `{CHANGELOG}`"))?;
    section(&text, version)
}

fn section(text: &str, version: &str) -> Result<String> {
    let heading = format!("## [{version}] - ");
    let mut lines = text.lines().skip_while(|line| !line.starts_with(&heading));
    let first =
        lines.next().with_context(|| format!("`{CHANGELOG}` has no section `{heading}YYYY-MM-DD`"))?;
    let is_part = |line: &&str| !line.starts_with("## ") && !line.starts_with('[');
    let body: Vec<_> = lines.take_while(is_part).collect();
    let body = body.join("\n");
    ensure!(!body.trim().is_empty(), "`{CHANGELOG}` says nothing about {version}");
    Ok(format!("# schedspan {}\n\n{}\n", first.trim_start_matches("## "), body.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Changelog\n\n## [Unreleased]\n\n## [1.1.0] - 2026-01-02\n\n### Added\n\n- A.\n\n## [1.0.0] - 2026-01-01\n\n[1.1.0]: x\n";

    #[test]
    fn the_notes_are_the_section_of_the_version() {
        assert_eq!(
            section(TEXT, "1.1.0").unwrap(),
            "# schedspan [1.1.0] - 2026-01-02\n\n### Added\n\n- A.\n"
        );
        assert!(section(TEXT, "1.0.0").unwrap_err().to_string().contains("says nothing"));
        assert!(section(TEXT, "1.2.0").unwrap_err().to_string().contains("no section"));
    }

    #[test]
    fn the_version_of_the_workspace_has_notes() {
        assert!(notes(VERSION).unwrap().contains("### Added"));
    }

    #[test]
    fn another_version_than_the_workspaces_is_refused() {
        assert_eq!(agreed(None).unwrap(), VERSION);
        assert!(agreed(Some("99.0.0")).unwrap_err().to_string().contains("not 99.0.0"));
    }
}

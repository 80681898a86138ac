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
    use std::env;

    use super::*;

    /// The annotation, and the lines that follow it until the next one.
    const ANNOTATION: &str = "  artifacthub.io/changes: |\n";

    /// The changes of a version as the chart's annotation `artifacthub.io/changes` has them: <https://artifacthub.io/docs/topics/annotations/helm/>.
    fn changes(section: &str) -> String {
        let (mut kind, mut changes) = (String::new(), Vec::<(String, String)>::new());
        for line in section.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                kind = heading.to_lowercase();
            } else if let Some(first) = line.strip_prefix("- ") {
                changes.push((kind.clone(), first.to_owned()));
            } else if let (Some(rest), Some((_, change))) = (line.strip_prefix("  "), changes.last_mut()) {
                *change += " ";
                *change += rest.trim();
            }
        }
        let entry = |(kind, change): &(String, String)| {
            let quoted = serde_json::Value::from(without_links(change));
            format!("- kind: {kind}\n  description: {quoted}\n")
        };
        changes.iter().map(entry).collect()
    }

    /// The text of links, without their addresses.
    fn without_links(text: &str) -> String {
        let mut parts = text.split("](");
        let first = parts.next().unwrap_or_default().to_owned();
        let text =
            parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, after)| after));
        text.replace('[', "")
    }

    /// `UPDATE_DOCS=1 cargo test -p release` writes them.
    #[test]
    fn the_changes_in_the_chart_are_those_of_the_changelog() {
        let path = paths::repository().join("deploy/chart/schedspan/Chart.yaml");
        let chart = fs::read_to_string(&path).unwrap();
        let (before, after) = chart.split_once(ANNOTATION).unwrap();
        let end = after.split_inclusive('\n').take_while(|line| line.starts_with("    ")).map(str::len).sum();
        let changes = changes(&notes(VERSION).unwrap());
        let lines: String = changes.lines().map(|line| format!("    {line}\n")).collect();
        let made = format!("{before}{ANNOTATION}{lines}{}", &after[end..]);
        if env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &made).unwrap();
        } else {
            assert!(chart == made, "UPDATE_DOCS=1 writes the changes into {}", path.display());
        }
    }

    #[test]
    fn a_change_has_its_kind_and_its_text_in_one_line() {
        let section = "# 1.0\n\n### Added\n\n- One \"a\"\n  and [two](two.md).\n\n### Security\n\n- Three.\n";
        let expected = "- kind: added\n  description: \"One \\\"a\\\" and two.\"\n- kind: security\n  description: \"Three.\"\n";
        assert_eq!(changes(section), expected);
    }

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

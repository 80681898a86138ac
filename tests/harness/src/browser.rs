//! A real browser, which scripts of `tests/e2e/browser` drive.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use xtask::{paths, process, setup};

/// The scripts, and the list of what they need.
const FOLDER: &str = "tests/e2e/browser";
/// The oldest Node.js that playwright-core runs on.
const NODE: u32 = 20;

/// The command that runs a script.
pub fn script(name: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(paths::repository().join(FOLDER).join(name));
    command
}

/// What drives the browser, outside of the repository: it is installed once.
///
/// # Errors
///
/// If the machine has no browser or no Node.js, and none can be installed.
pub fn tools() -> Result<PathBuf> {
    setup::ensure_browser()?;
    let version = process::first_line("node", &["--version"]).context("there is no Node.js")?;
    let major = version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    ensure!(
        major.is_some_and(|major| major >= NODE),
        "it needs Node.js {NODE} or newer, and here is {version}"
    );
    let source = paths::repository().join(FOLDER);
    let tools = paths::cache()?.join("browser");
    fs::create_dir_all(&tools)?;
    let lock = |folder: &Path| fs::read(folder.join("package-lock.json")).ok();
    if lock(&source) != lock(&tools) || !tools.join("node_modules/axe-core").exists() {
        let mut install = Command::new("npm");
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), tools.join(name))?;
        }
        install.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(&tools);
        process::run("npm ci for the browser", &mut install)?;
    }
    Ok(tools)
}

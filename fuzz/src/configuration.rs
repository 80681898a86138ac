//! A case is a scheduler's command line, with spaces between arguments, and on the following lines its configuration in YAML.

use kube_scheduler::configuration::{Configuration, MAX_SETTING, MAX_SETTINGS};

/// The longest setting, with the mark of what was cut.
const LONGEST: usize = MAX_SETTING + '…'.len_utf8();

/// Reads the settings.
///
/// # Panics
///
/// If there are more of them than the reader may keep, or one is longer.
pub fn run(case: &[u8]) {
    let text = String::from_utf8_lossy(case);
    let (line, content) = text.split_once('\n').map_or((&*text, None), |(line, rest)| (line, Some(rest)));
    let Ok(configuration) = Configuration::parse(&line.replace(' ', "\0"), content) else { return };
    assert!(configuration.settings.len() <= MAX_SETTINGS, "{} settings", configuration.settings.len());
    assert!(configuration.profiles.len() <= MAX_SETTINGS, "{} profiles", configuration.profiles.len());
    let longest = configuration.settings.iter().map(String::len).max().unwrap_or_default();
    assert!(longest <= LONGEST, "a setting of {longest} bytes");
    assert!(configuration.difference(&configuration).is_empty(), "it differs from itself");
}

//! The configuration that a scheduler was started with: its flags, and the KubeSchedulerConfiguration that
//! `--config` names, as the process itself can read it.

mod credentials;
mod file;
pub mod reader;
mod shown;

use std::{
    fs::File,
    io::{self, Read as _},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use gotrace::discover::ProcessId;

pub(crate) use self::shown::public;
use self::shown::{NOT_SHOWN, Place, is_known_flag, is_switch};

/// Bytes of a command line. The kernel's limit is 2 MiB; a scheduler's has some hundred bytes.
const MAX_COMMAND_LINE: u64 = 1 << 16;
/// Bytes of a configuration file; a scheduler's has some hundred lines.
const MAX_FILE: u64 = 1 << 20;
/// Bytes of all settings; each setting repeats its path in the file.
const MAX_TEXT: usize = 8 << 20;
/// Settings reported one by one; the hash covers all.
pub const MAX_SETTINGS: usize = 1_024;
/// Bytes of one setting.
pub const MAX_SETTING: usize = 256;
/// `USER_HZ`, equal on all platforms that schedspan supports.
const TICKS_PER_SECOND: u64 = 100;
/// A scheduler's flags and configuration file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// Path that `--config` names.
    pub file: Option<PathBuf>,
    /// SHA-256 of all settings, in hex; independent of comments, order and what is not shown.
    pub hash: String,
    /// Flags as `--flag=value`, file settings as `profiles[default-scheduler].plugins…=value`; sorted.
    pub settings: Vec<String>,
    /// Profiles in the file; `default-scheduler` where it has none.
    pub profiles: Vec<String>,
    /// The file was modified after the start of the process, which therefore uses an older version.
    pub outdated: bool,
    /// Start of the process, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
}

/// Why a configuration is unknown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read `{}`: {reason}", path.display())]
    Unreadable {
        /// The file's path.
        path: PathBuf,
        /// The I/O error.
        reason: io::Error,
    },
    /// The file is not a KubeSchedulerConfiguration.
    #[error("`{}` is not a KubeSchedulerConfiguration: {reason}", path.display())]
    Invalid {
        /// The file's path, as the process sees it.
        path: PathBuf,
        /// The parse error.
        reason: String,
    },
}

impl Configuration {
    /// Reads the configuration of a process. Blocks for as long as the file system of its file does: see [`reader`].
    ///
    /// # Errors
    ///
    /// When its command line or its file cannot be read.
    pub fn of(process: ProcessId) -> Result<Self, Error> {
        let ProcessId { pid, .. } = process;
        let path = PathBuf::from(format!("/proc/{pid}/cmdline"));
        let line = File::open(&path).and_then(|file| text(file, MAX_COMMAND_LINE));
        let line = line.map_err(|reason| Error::Unreadable { path, reason })?;
        let started = started(process);
        let since_epoch = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let started_unix_ns = u64::try_from(since_epoch.as_nanos()).unwrap_or_default();
        let named = flags(&line).find_map(|(name, value)| (name == "config").then_some(value));
        let path = PathBuf::from(named.unwrap_or_default());
        let unreadable = |reason| Error::Unreadable { path: path.clone(), reason };
        let (mut content, mut outdated) = (None, false);
        if named.is_some() {
            let file = file::open_as(process, &path).map_err(unreadable)?;
            let written = file.metadata().and_then(|metadata| metadata.modified()).ok();
            // File times have the resolution of the kernel's tick, as does the start of the process.
            outdated = written.is_some_and(|written| written > started + Duration::from_secs(1));
            content = Some(text(file, MAX_FILE).map_err(unreadable)?);
        }
        let told = Self::parse(&line, content.as_deref());
        let told = told.map_err(|reason| Error::Invalid { path: path.clone(), reason })?;
        Ok(Self { file: named.map(|_| path.clone()), outdated, started_unix_ns, ..told })
    }

    /// The settings of a command line, whose arguments NUL separates, and of the YAML in its file, if it names one.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, or that there is too much of it. Quotes none of it.
    pub fn parse(command_line: &str, content: Option<&str>) -> Result<Self, String> {
        let content = content.map(serde_saphyr::from_str).transpose();
        // The parser's own error quotes the file.
        let content = content.map_err(|error| {
            error.location().map_or_else(
                || "it is not YAML".to_owned(),
                |at| format!("line {}, column {} is not YAML", at.line(), at.column()),
            )
        })?;
        Self::new(command_line, &content.unwrap_or_default())
    }

    fn new(command_line: &str, content: &Value) -> Result<Self, String> {
        let mut told = Settings { lines: Vec::new(), room: MAX_TEXT };
        for (name, value) in flags(command_line) {
            told.add(&format!("--{name}"), if is_known_flag(name) { value } else { NOT_SHOWN })?;
        }
        told.flatten(content, "", &Place::default())?;
        let mut settings = told.lines;
        settings.sort_unstable();
        let mut hash = Sha256::new();
        for setting in &settings {
            hash.update(setting);
            hash.update("\n");
        }
        let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        for setting in &mut settings {
            if setting.len() > MAX_SETTING {
                setting.truncate(setting.floor_char_boundary(MAX_SETTING));
                setting.push('…');
            }
        }
        settings.truncate(MAX_SETTINGS);
        let named = content["profiles"].as_array().into_iter().flatten();
        let mut profiles: Vec<String> =
            named.map(|profile| profile["schedulerName"].as_str().unwrap_or(DEFAULT).to_owned()).collect();
        profiles.truncate(MAX_SETTINGS);
        if profiles.is_empty() {
            profiles.push(DEFAULT.to_owned());
        }
        Ok(Self { hash, settings, profiles, ..Self::default() })
    }

    /// Returns the value of a flag.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<&str> {
        self.settings
            .iter()
            .find_map(|setting| setting.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
    }

    /// Lists the settings that differ from an earlier configuration: `-` marks the old value, `+` the new
    /// one.
    #[must_use]
    pub fn difference(&self, earlier: &Self) -> Vec<String> {
        let lacks = |these: &Self, those: &Self, sign: &str| -> Vec<String> {
            let others =
                those.settings.iter().filter(|setting| these.settings.binary_search(setting).is_err());
            others.map(|setting| format!("{sign}{setting}")).collect()
        };
        [lacks(self, earlier, "-"), lacks(earlier, self, "+")].concat()
    }
}

/// `v1.DefaultSchedulerName`.
const DEFAULT: &str = "default-scheduler";

/// Splits a NUL-separated command line into flags. A value may be an argument of its own, as in pflag.
fn flags(command_line: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut arguments = command_line.split('\0').skip(1).peekable();
    std::iter::from_fn(move || {
        loop {
            let argument = arguments.next()?;
            let flag = match (argument.strip_prefix("--"), argument.strip_prefix('-')) {
                (Some(flag), _) => flag,
                // A value may follow a short flag at once.
                (None, Some(flag)) if is_known_flag(flag.split('=').next().unwrap_or_default()) => flag,
                (None, Some(_) | None) => continue,
            };
            return Some(match flag.split_once('=') {
                Some(flag) => flag,
                None if is_switch(flag) => (flag, "true"),
                None => (flag, arguments.next_if(|next| !next.starts_with('-')).unwrap_or("true")),
            });
        }
    })
}

/// Collects one line per setting.
struct Settings {
    lines: Vec<String>,
    /// Bytes left of [`MAX_TEXT`].
    room: usize,
}

impl Settings {
    fn add(&mut self, path: &str, value: &str) -> Result<(), String> {
        let line = format!("{path}={}", public(value));
        let room = self.room.checked_sub(line.len());
        self.room = room.ok_or_else(|| format!("its settings have more than {MAX_TEXT} bytes"))?;
        self.lines.push(line);
        Ok(())
    }

    /// Adds one line per scalar value that is shown, and one for each part of the file that is not.
    fn flatten(&mut self, value: &Value, path: &str, place: &Place) -> Result<(), String> {
        match value {
            Value::Null => Ok(()),
            _ if !place.has_shown() => self.add(path, NOT_SHOWN),
            Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
                let dot = if path.is_empty() { "" } else { "." };
                self.flatten(value, &format!("{path}{dot}{key}"), &place.field(key, fields))
            }),
            Value::Array(elements) => {
                let place = place.element();
                if !place.has_shown() {
                    return self.add(path, NOT_SHOWN);
                }
                elements.iter().enumerate().try_for_each(|(index, element)| {
                    // Keyed by name, so that an inserted element does not change the paths of those after it.
                    let name = |key| element.get(key)?.as_str();
                    let name = ["schedulerName", "name"].into_iter().find_map(name);
                    let path =
                        name.map_or_else(|| format!("{path}[{index}]"), |name| format!("{path}[{name}]"));
                    self.flatten(element, &path, &place)
                })
            }
            _ if !place.is_shown() => self.add(path, NOT_SHOWN),
            Value::String(text) => self.add(path, text),
            Value::Bool(_) | Value::Number(_) => self.add(path, &value.to_string()),
        }
    }
}

fn text(file: File, limit: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it has more than {limit} bytes")));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Start time of a process: now, less the time since boot, plus its start in ticks since boot.
#[expect(clippy::disallowed_methods, reason = "a configuration is read from a process that runs now")]
fn started(process: ProcessId) -> SystemTime {
    let since_boot = clock_gettime(ClockId::Boottime);
    let since_boot = Duration::from_millis(
        since_boot.tv_sec.cast_unsigned() * 1_000 + since_boot.tv_nsec.cast_unsigned() / 1_000_000,
    );
    let started = Duration::from_millis(process.start_ticks.saturating_mul(1_000 / TICKS_PER_SECOND));
    SystemTime::now() - since_boot.saturating_sub(started)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(line: &str, content: &Value) -> Configuration {
        Configuration::new(&line.replace(' ', "\0"), content).expect("it is short")
    }

    #[test]
    fn parses_flags_like_pflag() {
        let line = "kube-scheduler\0--config=/etc/s.yaml\0-v\x002\0--leader-elect\0not-its\0--bind-address\0::\0--x=\0";
        let read: Vec<_> = flags(line).collect();
        assert_eq!(
            read,
            [
                ("config", "/etc/s.yaml"),
                ("v", "2"),
                ("leader-elect", "true"),
                ("bind-address", "::"),
                ("x", "")
            ]
        );
        assert_eq!(flags("").count(), 0);
    }

    #[test]
    fn difference_lists_old_and_new_values() {
        let profile = |weight: u32| {
            json!({
                "profiles": [
                    { "schedulerName": "a", "plugins": { "score": { "enabled": [{ "name": "P", "weight": weight }] } } },
                    { "schedulerName": "b" },
                ],
            })
        };
        let (one, other) = (of("s --v=2", &profile(1)), of("s --v=3", &profile(5)));
        assert_eq!(one.profiles, ["a", "b"]);
        assert_ne!(one.hash, other.hash);
        assert_eq!(
            other.difference(&one),
            [
                "---v=2",
                "-profiles[a].plugins.score.enabled[P].weight=1",
                "+--v=3",
                "+profiles[a].plugins.score.enabled[P].weight=5",
            ]
        );
        assert_eq!(one.difference(&one), [""; 0]);
        assert_eq!((other.flag("v"), other.flag("config")), (Some("3"), None));
        // The order of the flags does not matter.
        assert_eq!(of("s --a=1 --b=2", &Value::Null).hash, of("s --b=2 --a=1", &Value::Null).hash);
    }

    #[test]
    fn only_known_settings_are_shown() {
        let content = json!({
            "clientConnection": { "kubeconfig": "/etc/s.conf", "new": "s3cret" },
            "extenders": [{
                "urlPrefix": "https://me:s3cret@s3cret@extender:8888/a@b?s3cret#s3cret",
                "filterVerb": "filter?s3cret",
                "tlsConfig": { "keyData": "s3cret", "serverName": "e" },
            }],
            "profiles": [{
                "pluginConfig": [
                    { "name": "Load", "args": {
                        "metricProvider": { "secretKey": "s3cret", "address": "http://prometheus:9090" },
                        "env": [{ "name": "PASSWORD", "value": "s3cret" }], "auth": "s3cret", "s3cret": 1,
                    } },
                    { "name": "NodeResourcesFit", "args": {
                        "scoringStrategy": { "type": "MostAllocated" }, "passwd": "s3cret",
                        "ignoredResources": ["example.com/a"],
                    } },
                ],
                "plugins": { "score": { "enabled": [{ "name": "P", "weight": 2, "passwd": "s3cret" }] } },
            }],
            "parallelism": 8,
            "new": { "s3cret": ["s3cret"] },
            "list": ["s3cret"],
            "none": null,
        });
        let line = "s --privateKey=s3cret --auth s3cret --v=3 -t s3cret -ts3cret --leader-elect s3cret --master=https://u:s3cret@m:6443/";
        let Configuration { settings, profiles, .. } = of(line, &content);
        let text = settings.join("\n");
        assert!(!text.contains("s3cret"), "{text}");
        assert_eq!(
            settings,
            [
                "--auth=(not shown)",
                "--leader-elect=true",
                "--master=https://(not shown)@m:6443/",
                "--privateKey=(not shown)",
                "--v=3",
                "clientConnection.kubeconfig=/etc/s.conf",
                "clientConnection.new=(not shown)",
                "extenders[0].filterVerb=filter?(not shown)",
                "extenders[0].tlsConfig.keyData=(not shown)",
                "extenders[0].tlsConfig.serverName=e",
                "extenders[0].urlPrefix=https://(not shown)@extender:8888/a@b?(not shown)",
                "list=(not shown)",
                "new=(not shown)",
                "parallelism=8",
                "profiles[0].pluginConfig[Load].args=(not shown)",
                "profiles[0].pluginConfig[Load].name=Load",
                "profiles[0].pluginConfig[NodeResourcesFit].args.ignoredResources[0]=example.com/a",
                "profiles[0].pluginConfig[NodeResourcesFit].args.passwd=(not shown)",
                "profiles[0].pluginConfig[NodeResourcesFit].args.scoringStrategy.type=MostAllocated",
                "profiles[0].pluginConfig[NodeResourcesFit].name=NodeResourcesFit",
                "profiles[0].plugins.score.enabled[P].name=P",
                "profiles[0].plugins.score.enabled[P].passwd=(not shown)",
                "profiles[0].plugins.score.enabled[P].weight=2",
            ]
        );
        assert_eq!(profiles, [DEFAULT]);
    }

    #[test]
    fn settings_are_bounded() {
        let long = json!({ "kind": "é".repeat(1_000), "extenders": vec![json!({ "weight": 1 }); 10_000] });
        let Configuration { settings, .. } = of("s", &long);
        assert_eq!(settings.len(), MAX_SETTINGS);
        assert!(settings.iter().all(|setting| setting.len() <= MAX_SETTING + 3));
        let mut deep = json!(1);
        for _ in 0..1_000 {
            deep = json!([deep]);
        }
        let Configuration { settings, .. } = of("s", &json!({ "extenders": deep }));
        assert_eq!(settings, ["extenders[0]=(not shown)"]);
        // Each line repeats the whole path.
        let wide = json!({ "extenders": vec![json!({ "name": "k".repeat(10_000), "weight": 1 }); 1_000] });
        let error = Configuration::new("s", &wide).unwrap_err();
        assert!(error.contains("more than"), "{error}");
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "this process runs now")]
    fn reads_the_configuration_of_this_process() {
        let process = ProcessId::of(std::process::id()).expect("it runs");
        let Configuration { hash, file, outdated, .. } = Configuration::of(process).expect("it may be read");
        assert_eq!((hash.len(), file, outdated), (64, None, false));
        let age = SystemTime::now().duration_since(started(process)).expect("it has started");
        assert!(age < Duration::from_secs(3_600), "this test runs for {age:?}");
        let none = ProcessId { pid: u32::MAX, start_ticks: 0 };
        assert!(Configuration::of(none).is_err_and(|error| error.to_string().contains("cmdline")));
    }

    #[test]
    fn what_the_reader_has_written_is_read_back() {
        let read = of("s\0--v=2", &json!({ "profiles": [{ "schedulerName": "\u{7}\"é" }] }));
        let written = serde_json::to_vec(&Ok::<_, String>(read.clone())).expect("it is text");
        assert_eq!(reader::answer(&written), Ok(read));
        let written = serde_json::to_vec(&Err::<Configuration, _>("it is a folder")).expect("it is text");
        assert_eq!(reader::answer(&written), Err("it is a folder".to_owned()));
        let error = reader::answer(b"").expect_err("it has written nothing");
        assert!(error.contains("has ended"), "{error}");
        assert_eq!(reader::serve(["s", "run", "1", "2"].map(Into::into).into_iter()), None);
    }
}

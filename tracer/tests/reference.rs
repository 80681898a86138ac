//! The reference in `docs/reference/` is what the program says of itself: flags, metrics, attributes. So are the values of the chart.
//!
//! `UPDATE_DOCS=1 cargo test -p tracer --test reference` writes the files again, for a change that is meant.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    env,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use clap::{Arg, ArgAction, Command, CommandFactory as _};
use gotrace::account::{Count, Counter};
use kube_scheduler::attempt::CPU_NANOSECONDS;
use serde_json::Value;
use spans::{
    ApiStep, Cycle, NodeStep, Phase, Stage, TraceKind,
    attributes::{self, Attribute, ValueType},
    fixtures::{scheduled, with_plugins},
};
use telemetry::Registry;
use tracer::{cli::Cli, metrics::Metrics, programs::PROGRAMS};

const GENERATED: &str =
    "Made by `UPDATE_DOCS=1 cargo test -p tracer --test reference`; `cargo xtask test` compares.";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Compares a file of the reference with what it is made from, or writes it.
fn compare(name: &str, made: &str) {
    compare_file(&docs().join("reference").join(name), made);
}

fn compare_file(path: &Path, made: &str) {
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(path, made).expect("the file can be written");
    }
    let stored = fs::read_to_string(path).expect("the file is in the tree");
    let difference = stored.lines().zip(made.lines()).find(|(stored, made)| stored != made);
    assert!(stored == made, "{} is stale: {difference:?}; UPDATE_DOCS=1 writes it", path.display());
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[test]
fn flags_are_those_of_the_program() {
    let mut program = Cli::command();
    program.build();
    let mut text = format!(
        "# Flags\n\n{GENERATED}\n\n`schedspan VERB --help` prints the same, with examples. `--log LEVEL` (`SCHEDSPAN_LOG`, default \
         `info,kube_runtime=error`) goes with every verb: a level, or directives such as `debug,kube=warn`. Exit codes: 0 done, \
         1 the answer is no, 2 it could not be done, 64 an invalid command line: [kubectl.md](../kubectl.md#exit-codes).\n"
    );
    for verb in program.get_subcommands().filter(|verb| verb.get_name() != "help" && !verb.is_hide_set()) {
        text += &flags_of(verb);
    }
    compare("flags.md", &text);
}

/// The section of a verb.
fn flags_of(verb: &Command) -> String {
    let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
    let mut text = format!("\n## `schedspan {}`\n\n{about}.\n", verb.get_name());
    let mut headings: BTreeMap<&str, Vec<&Arg>> = BTreeMap::new();
    for arg in verb.get_arguments().filter(|arg| !["help", "version", "log"].contains(&arg.get_id().as_str()))
    {
        headings.entry(arg.get_help_heading().unwrap_or_default()).or_default().push(arg);
    }
    for (heading, arguments) in headings {
        let heading = if heading.is_empty() { "flag" } else { heading };
        let _infallible = write!(text, "\n| {heading} | default | variable | |\n|---|---|---|---|\n");
        for arg in arguments {
            text += &flag(arg);
        }
    }
    text
}

/// The line of a flag.
fn flag(arg: &Arg) -> String {
    let takes_value = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let value = arg.get_value_names().unwrap_or_default().join(" ");
    let names =
        [arg.get_short().map(|short| format!("-{short}")), arg.get_long().map(|long| format!("--{long}"))];
    let names = names.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let name = if takes_value { format!("{names} {value}").trim().to_owned() } else { names };
    let default = if takes_value {
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect::<Vec<_>>().join(",")
    } else {
        String::new()
    };
    let code = |text: &str| if text.is_empty() { String::new() } else { format!("`{text}`") };
    let variable = arg.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|_| takes_value)
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let values = if values.is_empty() { String::new() } else { format!(": {}", values.join(", ")) };
    format!(
        "| `{}` | {} | {} | {}{values} |\n",
        cell(&name),
        code(&cell(&default)),
        code(&variable),
        cell(&help)
    )
}

/// The metrics of the daemon and of the webhook, with a value in each family: those without are not exported.
fn filled() -> (Metrics, Registry) {
    let metrics = Metrics::default();
    metrics.trace(&scheduled());
    metrics.attempts.group_attempt("Success");
    metrics.attempts.durations(&with_plugins(1), true);
    metrics.spans.kept("failed");
    for Counter { name, labels, .. } in PROGRAMS.iter().flat_map(|program| program.counters) {
        let labels = vec!["x".to_owned(); labels.len()];
        metrics.counts(&[Count { counter: name, labels, total: 1 }]);
    }
    let labels = vec!["filter".to_owned(), "NodeResourcesFit".to_owned()];
    metrics.counts(&[Count { counter: CPU_NANOSECONDS, labels, total: 1 }]);
    metrics.tracing.set_planned(std::iter::empty());
    let webhook = Registry::default();
    let _registered = (webhook::Metrics::new(&webhook), status::refused(&webhook));
    (metrics, webhook)
}

#[test]
fn metrics_are_those_that_are_exported() {
    let (metrics, webhook) = filled();
    let mut text = format!(
        "# Metrics\n\n{GENERATED}\n\n[operate.md](../operate.md#metrics) explains them, and says what to do about each cause of loss. \
         Counters have the suffix `_total` on `/metrics`.\n"
    );
    for (title, exposition) in
        [("`schedspan run`", metrics.registry.encode()), ("`schedspan webhook`", webhook.encode())]
    {
        let _infallible = write!(text, "\n## {title}\n\n| metric | type | labels | |\n|---|---|---|---|\n");
        text += &families(&exposition);
    }
    compare("metrics.md", &text);
}

#[test]
fn dashboard_alerts_and_documentation_name_existing_metrics() {
    let (metrics, webhook) = filled();
    let text = metrics.registry.encode() + &webhook.encode();
    let exported: HashSet<&str> = text.lines().filter_map(|line| line.split(['{', ' ']).next()).collect();
    let dashboard = include_str!("../../deploy/chart/schedspan/dashboard.json");
    let alerts = include_str!("../../deploy/chart/schedspan/alerts.yaml");
    let documentation = include_str!("../../docs/operate.md");
    for words in [dashboard, alerts, documentation] {
        let words = words.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: HashSet<&str> =
            words.filter(|word| word.starts_with("schedspan_") || word.starts_with("process_")).collect();
        assert!(named.len() > 4, "{named:?}");
        let unknown: Vec<_> = named.difference(&exported).collect();
        assert!(unknown.is_empty(), "nothing exports {unknown:?}: {text}");
    }
    for name in exported.iter().filter(|name| name.starts_with("schedspan_")) {
        assert!(documentation.contains(name), "{name} is not documented");
    }
    for cause in metrics.losses().into_iter().map(|(cause, _)| cause) {
        let cause = format!("`{cause}`");
        assert!(documentation.contains(&cause), "what to do about {cause} is not documented");
    }
}

/// A line for each family of an exposition.
fn families(exposition: &str) -> String {
    let (mut help, mut types) = (BTreeMap::new(), BTreeMap::new());
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in exposition.lines() {
        if let Some((name, text)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            help.insert(name, text);
        } else if let Some((name, text)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            types.insert(name, text);
        } else if let Some((name, rest)) = line.split_once('{') {
            let family =
                types.keys().filter(|family| name.starts_with(**family)).max_by_key(|family| family.len());
            let pairs = rest.split_once('}').map_or("", |(pairs, _)| pairs);
            let keys = pairs.split(',').filter_map(|pair| pair.split_once('=')).map(|(key, _)| key);
            labels.entry(family.expect("a type comes before its samples")).or_default().extend(keys);
        }
    }
    let mut text = String::new();
    for (name, kind) in types {
        let keys = labels.get(name).into_iter().flatten().map(|key| format!("`{key}`")).collect::<Vec<_>>();
        let meaning = help.get(name).copied().unwrap_or_default().trim_end_matches('.');
        let _infallible = writeln!(text, "| `{name}` | {kind} | {} | {} |", keys.join(", "), cell(meaning));
    }
    text
}

#[test]
fn attributes_are_a_registry_of_semantic_conventions() {
    let mut yaml = format!(
        "# Attributes of schedspan's spans, as a registry of OpenTelemetry's semantic conventions.\n# {GENERATED}\ngroups:\n  - id: \
         registry.schedspan\n    type: attribute_group\n    display_name: Attributes of schedspan\n    brief: What spans of \
         scheduling attempts, Pod lifecycles and reconciles carry.\n    attributes:\n"
    );
    let mut table = format!(
        "# Attributes\n\n{GENERATED} [attributes.yaml](attributes.yaml) has the same as a registry of OpenTelemetry's \
         semantic conventions. [spans.md](spans.md) has the spans.\n\n| attribute | type | |\n|---|---|---|\n"
    );
    let mut keys = BTreeSet::new();
    for Attribute { key, value_type, brief } in attributes::ALL {
        assert!(keys.insert(*key), "{key} occurs twice");
        assert!(brief.ends_with('.'), "{key}: a sentence is needed, not {brief:?}");
        let value_type = name_of(*value_type);
        let quoted = serde_json::to_string(brief).expect("text becomes JSON, which YAML includes");
        let _infallible = write!(
            yaml,
            "      - id: {key}\n        type: {value_type}\n        stability: development\n        brief: {quoted}\n"
        );
        let _infallible = writeln!(table, "| `{key}` | {value_type} | {} |", cell(brief));
    }
    compare("attributes.yaml", &yaml);
    compare("attributes.md", &table);
}

fn name_of(value_type: ValueType) -> &'static str {
    match value_type {
        ValueType::String => "string",
        ValueType::Strings => "string[]",
        ValueType::Int => "int",
        ValueType::Double => "double",
        ValueType::Bool => "boolean",
    }
}

#[test]
fn recorded_spans_have_attributes_of_the_registry() {
    let known: BTreeMap<_, _> =
        attributes::ALL.iter().map(|attribute| (attribute.key, attribute.value_type)).collect();
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(docs().join("../tests/streams")).expect("the streams are in the tree") {
        let path = entry.expect("the folder can be read").path();
        if !path.display().to_string().ends_with(".spans.jsonl") {
            continue;
        }
        for line in fs::read_to_string(path).expect("the spans can be read").lines() {
            let span: Value = serde_json::from_str(line).expect("each line is JSON");
            for attribute in span["attributes"].as_array().into_iter().flatten() {
                let key = attribute["key"].as_str().expect("an attribute has a key");
                let value = attribute["value"].as_object().and_then(|value| value.keys().next());
                let stored = match known.get(key).unwrap_or_else(|| panic!("{key} is not in the registry")) {
                    ValueType::String => "stringValue",
                    ValueType::Strings => "arrayValue",
                    ValueType::Int => "intValue",
                    ValueType::Double => "doubleValue",
                    ValueType::Bool => "boolValue",
                };
                assert_eq!(value.map(String::as_str), Some(stored), "{key}");
                seen.insert(key.to_owned());
            }
        }
    }
    assert!(seen.len() > 20, "{seen:?}");
}

#[test]
fn every_span_is_documented() {
    let text = fs::read_to_string(docs().join("reference/spans.md")).expect("the page is in the tree");
    let names = TraceKind::ALL.map(TraceKind::name).into_iter().chain(Cycle::ALL.map(Cycle::name));
    let names = names.chain(Phase::ALL.map(Phase::name)).chain(Stage::ALL.map(Stage::name));
    let names = names.chain(NodeStep::ALL.map(NodeStep::name)).chain(ApiStep::ALL.map(ApiStep::name));
    let missing: Vec<_> = names.filter(|name| !text.contains(&format!("`{name}"))).collect();
    assert!(missing.is_empty(), "docs/reference/spans.md lacks {missing:?}");
}

/// Levels of values that have a line: what is deeper belongs to Kubernetes or the Collector.
const LEVELS: usize = 3;

#[test]
fn values_of_the_chart_are_those_in_its_file() {
    let chart = docs().join("../deploy/chart/schedspan");
    let values = fs::read_to_string(chart.join("values.yaml")).expect("the values are in the tree");
    let readme = chart.join("README.md");
    let stored = fs::read_to_string(&readme).expect("the chart has a README");
    let (head, _) = stored.split_once("\n## Values\n").expect("there is a place for the values");
    let made = format!(
        "{head}\n## Values\n\n{GENERATED}\n\n| value | default | |\n|---|---|---|\n{}",
        values_of(&values)
    );
    compare_file(&readme, &made);
}

/// A line for each value, with the comment above it.
fn values_of(yaml: &str) -> String {
    let mut text = String::new();
    let mut comment: Vec<&str> = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    for line in yaml.lines() {
        let bare = line.trim_start();
        let level = (line.len() - bare.len()) / 2;
        if let Some(words) = bare.strip_prefix('#') {
            comment.push(words.trim());
        } else if bare.is_empty() {
            comment.clear();
        } else if let Some((key, value)) = bare.split_once(':').filter(|_| !bare.starts_with('-')) {
            path.truncate(level);
            if path.len() == level && level < LEVELS {
                path.push(key);
                let value = value.trim();
                let meaning = comment.join(" ");
                if !value.is_empty() || !meaning.is_empty() {
                    let value = if value.is_empty() { String::new() } else { format!("`{}`", cell(value)) };
                    let _infallible =
                        writeln!(text, "| `{}` | {value} | {} |", path.join("."), cell(&meaning));
                }
            }
            comment.clear();
        }
    }
    text
}

//! What is known about the schedulers' functions from their source, against what `schedspan inspect` says.

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

/// See there what a row is.
const REGISTERS: &str = include_str!("../../../tests/schedulers/registers.tsv");

/// The types that the table's words for parameters stand for; a result's word is its type.
const PARAMETERS: [(&str, &[&str]); 9] = [
    ("state", &["*framework.CycleState", "framework.CycleState"]),
    ("pod", &["*v1.Pod"]),
    ("podInfo", &["*framework.QueuedPodInfo"]),
    ("nodeName", &["string"]),
    ("nodeInfo", &["*framework.NodeInfo", "framework.NodeInfo"]),
    ("info", &["*framework.NodeInfo", "framework.NodeInfo"]),
    ("nodes", &["[]*v1.Node", "[]*framework.NodeInfo", "[]framework.NodeInfo"]),
    ("status", &["*framework.Status"]),
    ("start", &["time.Time"]),
];

/// A function that an executable spells out.
#[derive(Deserialize)]
pub(super) struct Signature {
    function: String,
    parameters: Vec<Place>,
    results: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    #[serde(rename = "type")]
    typ: String,
    place: String,
}

/// How many places were compared, and a sentence for each that differs.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) compared: usize,
    pub(super) differences: Vec<String>,
}

/// Compares the signatures of a scheduler of this version, such as `v1.36.4`, for this machine.
///
/// # Errors
///
/// If the version is none, or the table is broken.
pub(super) fn compare(version: &str, machine: &str, signatures: &[Signature]) -> Result<Comparison> {
    let minor = version.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok());
    let minor = minor.with_context(|| format!("`{version}` is no version"))?;
    let mut comparison = Comparison::default();
    for line in REGISTERS.lines().filter(|line| !line.starts_with('#')) {
        let cells: Vec<_> = line.split('\t').collect();
        ensure!(cells.len() == 7, "not a row of seven: {line}");
        let first: u32 = cells[1].parse().with_context(|| format!("no version: {line}"))?;
        let last = if cells[2].is_empty() { u32::MAX } else { cells[2].parse()? };
        let signature = signatures.iter().find(|signature| signature.function == cells[0]);
        let Some(signature) = signature.filter(|_| (first..=last).contains(&minor)) else { continue };
        let (inputs, outputs) = if machine == "arm64" { (cells[5], cells[6]) } else { (cells[3], cells[4]) };
        for (words, places, is) in [
            (inputs, &signature.parameters, is_parameter as fn(&str, &str) -> bool),
            (outputs, &signature.results, is_result),
        ] {
            for word in words.split(' ').filter(|word| *word != "-") {
                let (name, registers) = word.split_once('=').with_context(|| format!("no `=`: {line}"))?;
                let wanted = place(registers, machine);
                let found = places.iter().find(|place| is(name, &place.typ));
                let found = found.map_or("nowhere", |place| place.place.as_str());
                comparison.compared += 1;
                if found != wanted {
                    let function = cells[0];
                    comparison.differences.push(format!("{function}: {name} is in {found}, not {wanted}"));
                }
            }
        }
    }
    Ok(comparison)
}

fn is_parameter(word: &str, typ: &str) -> bool {
    PARAMETERS.iter().any(|(name, types)| *name == word && types.contains(&typ))
}

fn is_result(word: &str, typ: &str) -> bool {
    let short = typ.rsplit('.').next().unwrap_or(typ);
    let set = |word: &str| typ.contains(word) && word.contains('[');
    word == short || (word == "map" && typ.starts_with("map[")) || set(word)
}

/// The table writes registers as manuals do.
fn place(registers: &str, machine: &str) -> String {
    let lower = registers.to_lowercase();
    if machine == "arm64" && lower != "stack" { lower.replace('r', "x") } else { lower }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn permit(register: &str) -> Vec<Signature> {
        let text = format!(
            r#"[{{"function": "RunPermitPlugins", "parameters": [
                {{"type": "context.Context", "place": "rbx+rcx"}},
                {{"type": "*framework.CycleState", "place": "rdi"}},
                {{"type": "*v1.Pod", "place": "rsi"}},
                {{"type": "string", "place": "r8+r9"}}],
                "results": [{{"type": "*framework.Status", "place": "{register}"}}]}}]"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn what_agrees_with_the_table_is_counted() {
        let comparison = compare("v1.29.15", "amd64", &permit("rax")).unwrap();
        assert_eq!(comparison, Comparison { compared: 4, differences: vec![] });
    }

    #[test]
    fn what_differs_is_named() {
        let comparison = compare("v1.29.15", "amd64", &permit("rbx")).unwrap();
        assert_eq!(comparison.differences, ["RunPermitPlugins: Status is in rbx, not rax"]);
        // From 1.36 on, it returns a map first, and the state is an interface.
        assert_eq!(compare("v1.36.0", "amd64", &permit("rax")).unwrap().differences.len(), 5);
    }

    #[test]
    fn the_table_is_well_formed_and_every_word_for_a_parameter_is_known() {
        for machine in ["amd64", "arm64"] {
            compare("v1.33.0", machine, &permit("rax")).unwrap();
        }
        for line in REGISTERS.lines().filter(|line| !line.starts_with('#')) {
            for word in line.split('\t').nth(3).unwrap().split(' ').filter(|word| *word != "-") {
                let name = word.split('=').next().unwrap();
                assert!(PARAMETERS.iter().any(|(known, _)| *known == name), "{line}: {name}");
            }
        }
    }
}

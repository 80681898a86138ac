//! Compares the output of `schedspan inspect` with known registers and offsets of the schedulers' functions and structs.

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// The file explains its rows.
const REGISTERS: &str = include_str!("../../schedulers/registers.tsv");

/// The file explains its rows.
const OFFSETS: &str = include_str!("../../schedulers/offsets.tsv");

/// The types for the table's names of parameters. For results the table has the types.
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

/// A function's signature in the output of `inspect`.
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

/// A field of a struct.
#[derive(Deserialize)]
pub(super) struct Layout {
    #[serde(rename = "type")]
    typ: String,
    field: String,
    offset: u64,
}

/// The number of compared places, and a sentence for each difference.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Comparison {
    pub(super) compared: usize,
    pub(super) differences: Vec<String>,
}

/// Compares the signatures and layouts of a scheduler of this version, such as `v1.36.4`, for this machine.
///
/// # Errors
///
/// If the version or a table is malformed.
pub(super) fn compare(
    version: &str,
    machine: &str,
    signatures: &[Signature],
    layouts: &[Layout],
) -> Result<Comparison> {
    let version = numbers(version)?;
    let mut comparison = Comparison::default();
    registers(&mut comparison, version.0, machine, signatures)?;
    offsets(&mut comparison, version, layouts)?;
    Ok(comparison)
}

/// Minor and patch of `v1.36.4`.
fn numbers(version: &str) -> Result<(u32, u32)> {
    let mut parts = version.split('.').skip(1).map(str::parse::<u32>);
    let (Some(Ok(minor)), Some(Ok(patch))) = (parts.next(), parts.next()) else {
        bail!("`{version}` is not a version");
    };
    Ok((minor, patch))
}

fn offsets(comparison: &mut Comparison, version: (u32, u32), layouts: &[Layout]) -> Result<()> {
    for line in OFFSETS.lines().filter(|line| !line.starts_with('#')) {
        let [first, last, typ, field, offset] = line.split('\t').collect::<Vec<_>>()[..] else {
            bail!("not a row of five: {line}");
        };
        if !(numbers(first)?..=numbers(last)?).contains(&version) {
            continue;
        }
        let wanted: u64 = offset.parse().with_context(|| format!("no offset: {line}"))?;
        // The package has moved, but kept its last path element.
        let is = |layout: &&Layout| layout.typ.rsplit('/').next() == Some(typ) && layout.field == field;
        let found = layouts.iter().find(is).map(|layout| layout.offset);
        comparison.compared += 1;
        if found != Some(wanted) {
            comparison.differences.push(format!("{typ}.{field} is at {found:?}, not {wanted}"));
        }
    }
    Ok(())
}

fn registers(comparison: &mut Comparison, minor: u32, machine: &str, signatures: &[Signature]) -> Result<()> {
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
    Ok(())
}

fn is_parameter(word: &str, typ: &str) -> bool {
    PARAMETERS.iter().any(|(name, types)| *name == word && types.contains(&typ))
}

fn is_result(word: &str, typ: &str) -> bool {
    let short = typ.rsplit('.').next().unwrap_or(typ);
    let set = |word: &str| typ.contains(word) && word.contains('[');
    word == short || (word == "map" && typ.starts_with("map[")) || set(word)
}

/// The table has the registers' names from processor manuals.
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

    fn of(minor: u32, machine: &str, register: &str) -> Comparison {
        let mut comparison = Comparison::default();
        registers(&mut comparison, minor, machine, &permit(register)).unwrap();
        comparison
    }

    #[test]
    fn a_field_that_moves_with_a_patch_release_is_expected_at_both_places() {
        let at = |offset: u64| Layout {
            typ: "k8s.io/kubernetes/pkg/scheduler/framework.QueuedPodInfo".to_owned(),
            field: "InitialAttemptTimestamp".to_owned(),
            offset,
        };
        let differs = |version: (u32, u32), offset: u64| {
            let mut comparison = Comparison::default();
            offsets(&mut comparison, version, &[at(offset)]).unwrap();
            comparison.differences.iter().any(|text| text.contains("InitialAttemptTimestamp"))
        };
        assert!(!differs((36, 3), 88) && !differs((36, 4), 112));
        assert!(differs((36, 3), 112) && differs((36, 4), 88));
        assert!(compare("devel", "amd64", &[], &[]).is_err());
    }

    #[test]
    fn agreements_with_the_table_are_counted() {
        let comparison = of(29, "amd64", "rax");
        assert_eq!(comparison, Comparison { compared: 4, differences: vec![] });
    }

    #[test]
    fn differences_are_named() {
        let comparison = of(29, "amd64", "rbx");
        assert_eq!(comparison.differences, ["RunPermitPlugins: Status is in rbx, not rax"]);
        // From 1.36 on it returns a map first, and the state is an interface.
        assert_eq!(of(36, "amd64", "rax").differences.len(), 5);
    }

    #[test]
    fn the_table_is_well_formed_and_has_only_known_parameters() {
        for machine in ["amd64", "arm64"] {
            of(33, machine, "rax");
        }
        for line in REGISTERS.lines().filter(|line| !line.starts_with('#')) {
            for word in line.split('\t').nth(3).unwrap().split(' ').filter(|word| *word != "-") {
                let name = word.split('=').next().unwrap();
                assert!(PARAMETERS.iter().any(|(known, _)| *known == name), "{line}: {name}");
            }
        }
    }
}

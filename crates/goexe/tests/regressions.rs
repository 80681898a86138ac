//! What fuzzing found once: each case is answered, with whatever error, and what no file may claim is refused by name.

#[expect(unreachable_pub, reason = "shared with the fuzz targets")]
#[path = "../../../fuzz/src/cases/mod.rs"]
mod cases;
mod program;

use std::{fs, path::Path, sync::OnceLock};

use cases::{Seed, questions};
use goexe::Executable;

/// Everything that a target asks of an executable.
type Questions = fn(&[u8]);

/// The program that cases damage, built for each machine, with fixed addresses and without; empty, with a word why, where
/// there is no Go.
fn programs() -> &'static [Vec<u8>] {
    static PROGRAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let mut built = Vec::new();
        for (architecture, mode) in [("amd64", "exe"), ("arm64", "exe"), ("amd64", "pie"), ("arm64", "pie")] {
            let name = format!("regressions-{architecture}-{mode}");
            let Some(path) = program::build(&name, architecture, &["-ldflags=-s -w", "-buildmode", mode])
            else {
                return Vec::new();
            };
            built.push(fs::read(&path).expect("it was just built"));
        }
        built
    })
}

/// In the order of `cargo xtask fuzz`; what another Go builds there stands for itself here.
fn seeds() -> Vec<Seed> {
    let [amd64, arm64, amd64_pie, arm64_pie] = programs() else { return Vec::new() };
    let order = [amd64, arm64, amd64, arm64, amd64, arm64, amd64_pie, arm64_pie];
    order.into_iter().cloned().map(Seed::new).collect()
}

#[test]
fn what_once_crashed_is_answered() {
    let mut seeds = seeds();
    if seeds.is_empty() {
        return;
    }
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions");
    let targets: [(&str, Questions); 3] =
        [("elf", questions::elf), ("functions", questions::functions), ("types", questions::types)];
    let mut ran = 0;
    for (target, ask) in targets {
        // A target that nothing was found with has no folder.
        for case in fs::read_dir(folder.join(target)).into_iter().flatten() {
            let case = case.expect("the folder can be read").path();
            eprintln!("{}", case.display());
            cases::run(&mut seeds, &fs::read(case).expect("it can be read"), ask);
            ran += 1;
        }
    }
    assert!(ran > 0, "no cases in {}", folder.display());
}

#[test]
fn more_headers_than_a_linker_writes_are_refused() {
    let Some(program) = programs().first() else { return };
    // e_phnum; e_phoff as it is, so that the headers go on into the file's contents.
    let mut data = program.clone();
    data[0x38..0x3a].copy_from_slice(&1000u16.to_le_bytes());
    let error = Executable::parse(&data).expect_err("these are too many").to_string();
    assert!(error.contains("program headers at 0x40") && error.contains("e_phnum, is 1000"), "{error}");
}

#[test]
fn segments_of_more_bytes_than_the_file_are_refused() {
    const HEADER: usize = 56;
    let Some(program) = programs().first() else { return };
    let mut data = program.clone();
    let header = |number: usize| 0x40 + number * HEADER..0x40 + (number + 1) * HEADER;
    let loaded = (0..).map(header).find(|header| data[header.start..header.start + 4] == [1, 0, 0, 0]);
    let loaded = data[loaded.expect("something is loaded")].to_vec();
    for number in 0..usize::from(data[0x38]) {
        data[header(number)].copy_from_slice(&loaded);
    }
    let error = Executable::parse(&data).expect_err("they overlap").to_string();
    assert!(error.contains("p_filesz") && error.contains("overlap"), "{error}");
}

#[test]
fn functions_out_of_order_are_refused() {
    let Some(program) = programs().first() else { return };
    let magic = [0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let mut data = program.clone();
    let table = memchr::memmem::find(&data, &magic).expect("it has a function table");
    let funcs = u64::from_le_bytes(data[table + 64..table + 72].try_into().expect("a word"));
    let third = table + funcs as usize + 3 * 8;
    data[third..third + 4].fill(0xff);
    let executable = Executable::parse(&data).expect("the headers are whole");
    let error = executable.functions().expect_err("it is not sorted").to_string();
    assert!(error.contains("the entry offset of function 3 is 0xffffffff"), "{error}");
}

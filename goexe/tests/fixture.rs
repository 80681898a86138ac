//! goexe against a real Go program, stripped, that prints the truth about itself.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use goexe::{Callee, Class, Executable, Function, Kind, LinkMode, Location};
use proptest::prelude::*;

struct Fixture {
    path: PathBuf,
    data: Vec<u8>,
}

/// Builds the program once; `None`, with a word why, where there is no Go.
fn fixture() -> Option<&'static Fixture> {
    static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();
    FIXTURE
        .get_or_init(|| {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("fixture");
            let status = Command::new("go")
                .args(["build", "-trimpath", "-ldflags=-s -w", "-o"])
                .arg(&path)
                .arg(".")
                .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture"))
                .env("CGO_ENABLED", "0")
                .env("GOFLAGS", "-mod=mod")
                .status();
            match status {
                Ok(status) => assert!(status.success(), "the fixture does not build: {status}"),
                Err(error) => {
                    eprintln!("skipped: the fixture needs Go, and `go` does not start: {error}");
                    return None;
                }
            }
            let data = std::fs::read(&path).expect("it was just built");
            Some(Fixture { path, data })
        })
        .as_ref()
}

macro_rules! fixture_or_skip {
    () => {
        match fixture() {
            Some(fixture) => fixture,
            None => return,
        }
    };
}

fn function<'a>(executable: &Executable<'a>, name: &str) -> Function<'a> {
    let functions = executable.functions().expect("it has a function table");
    let mut found = functions.matching(|candidate| candidate == name.as_bytes());
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

#[test]
fn a_stripped_program_says_how_it_was_built() {
    let fixture = fixture_or_skip!();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let info = executable.build_info();
    assert!(info.go_version.starts_with("go1."), "{info:?}");
    assert_eq!(info.main.as_ref().map(|main| main.path.as_str()), Some("goexe.test/fixture"));
    assert!(executable.stripped());
    assert_eq!(executable.link_mode(), LinkMode::Static);
}

#[test]
fn layouts_are_what_the_program_itself_says() {
    let fixture = fixture_or_skip!();
    let output = Command::new(&fixture.path).output().expect("it runs");
    assert!(output.status.success(), "{output:?}");
    let truth: HashMap<String, u64> = String::from_utf8(output.stdout)
        .expect("it prints text")
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(field, offset)| (field.to_owned(), offset.parse().expect("a number")))
        .collect();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let types = executable.types().expect("it has types");
    let outer = types.find("main", "Outer").expect("it is allocated, so it has a descriptor");
    let path = |path: &[&str]| types.path(&outer, path).expect("the field is there");
    assert_eq!(path(&["List"]).offset, truth["Outer.List"]);
    assert_eq!(path(&["Fn"]).offset, truth["Outer.Fn"]);
    // Promoted through a pointer and then a value.
    let name = path(&["Name"]);
    assert_eq!((name.dereferences, name.offset), (vec![truth["Outer.Inner"]], truth["Inner.Name"]));
    let next = path(&["Next", "Namespace"]);
    assert_eq!(next.dereferences, vec![truth["Outer.Inner"], truth["Inner.Next"]]);
    assert_eq!(next.offset, truth["Inner.Namespace"]);
    assert_eq!(name.typ.kind, Kind::String);
    let absent = types.path(&outer, &["Nope"]).expect_err("there is no such field");
    assert!(absent.to_string().contains("`Nope`"), "{absent}");
}

#[test]
fn signatures_give_the_registers_of_the_calling_convention() {
    let fixture = fixture_or_skip!();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let types = executable.types().expect("it has types");
    let outer = types.find("main", "Outer").expect("it has a descriptor");
    let field = types.path(&outer, &["Fn"]).expect("the field is there").typ;
    let signature = types.signature(&field).expect("it is a function");
    let names = |list: &[goexe::Type]| -> Vec<String> {
        list.iter().map(|typ| types.string(typ).expect("it has a name").to_owned()).collect()
    };
    assert_eq!(names(&signature.parameters), ["*main.Outer", "string"]);
    assert_eq!(names(&signature.results), ["int", "error"]);
    let registers = |first, count| Location::Registers { first, count };
    let locations = types.parameter_locations(&signature.parameters, true).expect("they have places");
    assert_eq!(locations, [registers(1, 1), registers(2, 2)]);
    let locations = types.result_locations(&signature.results).expect("they have places");
    assert_eq!(locations, [registers(0, 1), registers(1, 2)]);
}

#[test]
fn an_entry_is_probed_after_the_stack_check_on_a_push() {
    let fixture = fixture_or_skip!();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let functions = executable.functions().expect("it has a function table");
    for name in ["main.direct", "main.deep", "main.(*impl).Run"] {
        let function = function(&executable, name);
        let site = executable.entry_site(&functions, &function).expect("it has a frame");
        assert_eq!(site.class, Class::Emulated, "{name}");
        assert!(site.address > function.range.start, "{name}: the stack check comes first");
        let offset = executable.file_offset(site.address).expect("code is in the file");
        assert_eq!(fixture.data[offset as usize], 0x55, "{name}: push %rbp");
    }
}

#[test]
fn the_stack_is_as_deep_as_the_frame_inside_a_function_and_not_at_its_entry() {
    let fixture = fixture_or_skip!();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let functions = executable.functions().expect("it has a function table");
    let deep = function(&executable, "main.deep");
    let entry = executable.entry_site(&functions, &deep).expect("it has a frame");
    assert_eq!(functions.stack_depth(&deep, deep.range.start), Some(0));
    assert_eq!(functions.stack_depth(&deep, entry.address), Some(0));
    let calls = executable.calls(&deep).expect("it decodes");
    let call =
        calls.iter().find(|call| call.callee == Callee::Direct(deep.range.start)).expect("it recurses");
    // Its own 512 bytes, and the saved frame pointer at least.
    let depth = functions.stack_depth(&deep, call.site.address).expect("the call is inside");
    assert!((520..700).contains(&depth), "{depth}");
    assert_eq!(call.site.class, Class::Emulated);
    assert_eq!(functions.stack_depth(&deep, deep.range.end), None);
}

#[test]
fn every_kind_of_call_is_found_with_its_return_site() {
    let fixture = fixture_or_skip!();
    let executable = Executable::parse(&fixture.data).expect("it is a Go executable");
    let types = executable.types().expect("it has types");
    let caller = function(&executable, "main.direct");
    let calls = executable.calls(&caller).expect("it decodes");
    let callee = function(&executable, "main.deep").range.start;
    let closure = types
        .path(&types.find("main", "Outer").expect("it has a descriptor"), &["Fn"])
        .expect("the field is there")
        .offset;
    let wanted = [
        ("direct", Callee::Direct(callee)),
        // Methods of an interface are sorted: Alpha is slot 0, Run slot 1. Where the itab came from does not matter.
        ("Worker.Alpha", Callee::Indirect { offset: 24, base: None }),
        ("Worker.Run", Callee::Indirect { offset: 32, base: None }),
        ("closure", Callee::Indirect { offset: 0, base: Some(closure) }),
    ];
    let is = |wanted: Callee, seen: Callee| match (wanted, seen) {
        (Callee::Indirect { offset, base: None }, Callee::Indirect { offset: seen, .. }) => offset == seen,
        _ => wanted == seen,
    };
    for (what, callee) in wanted {
        let found: Vec<_> = calls.iter().filter(|call| is(callee, call.callee)).collect();
        assert_eq!(found.len(), 1, "{what}: {calls:x?}");
        let site = found[0].return_site;
        assert!(site.is_none_or(|site| caller.range.contains(&site) && site >= found[0].resume), "{what}");
    }
    // The result of `deep` is compared at once, and is still in its register at the jump.
    let direct = calls.iter().find(|call| call.callee == Callee::Direct(callee)).expect("as above");
    assert!(direct.return_site.is_some() && direct.overwritten & 1 == 0, "{direct:x?}");
}

#[test]
fn what_is_no_go_executable_is_refused_with_a_reason() {
    let fixture = fixture_or_skip!();
    let itself = std::fs::read(std::env::current_exe().expect("this test runs")).expect("it can be read");
    let half = &fixture.data[..fixture.data.len() / 2];
    for (what, data, reason) in [
        ("empty", &[][..], "not a readable ELF file"),
        ("text", b"#!/bin/sh\necho hello\n", "not a readable ELF file"),
        ("a Rust program", &itself, "not a Go executable"),
        ("cut in half", half, "ELF"),
    ] {
        let error = Executable::parse(data).expect_err(what).to_string();
        assert!(error.contains(reason), "{what}: {error}");
    }
}

/// Asks everything that can be asked.
fn exercise(data: &[u8]) {
    let Ok(executable) = Executable::parse(data) else { return };
    let _ = executable.build_id();
    if let Ok(functions) = executable.functions() {
        for function in functions.matching(|name| name.starts_with(b"main.")) {
            let _ = executable.entry_site(&functions, &function);
            let _ = executable.calls(&function);
            let _ = executable.return_instructions(&function);
        }
    }
    if let Ok(types) = executable.types() {
        for name in ["Outer", "Inner", "impl", "Nope"] {
            let Ok(typ) = types.find("main", name) else { continue };
            let _ = types.path(&typ, &["Next", "Next", "Name"]);
            for field in types.fields(&typ).unwrap_or_default() {
                let _ = types.string(&field.typ);
                if let Ok(signature) = types.signature(&field.typ) {
                    let _ = types.parameter_locations(&signature.parameters, false);
                    let _ = types.result_locations(&signature.results);
                }
            }
        }
    }
}

/// The parts that are read: headers, build information, moduledata, function table, types.
fn interesting(data: &[u8]) -> Vec<usize> {
    let find = |needle: &[u8]| data.windows(needle.len()).position(|window| window == needle);
    let marks = [
        Some(0),
        find(b"\xff Go buildinf:"),
        find(&[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8]),
        find(b"main.Outer"),
    ];
    // Section headers stand at the end.
    marks.into_iter().flatten().chain([data.len().saturating_sub(1024)]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_never_makes_it_panic(
        damage in proptest::collection::vec((0usize..5, 0usize..4096, any::<u8>()), 1..24),
    ) {
        let Some(fixture) = fixture() else { return Ok(()) };
        let places = interesting(&fixture.data);
        let mut data = fixture.data.clone();
        for (place, offset, byte) in damage {
            let at = places[place % places.len()] + offset;
            if let Some(damaged) = data.get_mut(at) {
                *damaged = byte;
            }
        }
        exercise(&data);
    }

    #[test]
    fn a_file_cut_anywhere_never_makes_it_panic(cut in any::<prop::sample::Index>()) {
        let Some(fixture) = fixture() else { return Ok(()) };
        exercise(&fixture.data[..cut.index(fixture.data.len())]);
    }
}

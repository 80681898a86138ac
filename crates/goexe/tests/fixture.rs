//! goexe against a real Go program, stripped, that prints the truth about itself.

mod program;

use std::{
    collections::HashMap,
    io,
    path::PathBuf,
    process::Command,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use goexe::{Callee, Class, Executable, File, Function, Kind, LinkMode, Location, Machine, ReadAt};
use proptest::prelude::*;

/// The program, built in one of the ways that users build.
struct Fixture {
    /// For messages.
    what: &'static str,
    path: PathBuf,
    data: Vec<u8>,
    machine: Machine,
    link_mode: LinkMode,
}

/// Builds the program in every way, once; nothing, with a word why, where there is no Go.
fn fixtures() -> &'static [Fixture] {
    static FIXTURES: OnceLock<Vec<Fixture>> = OnceLock::new();
    FIXTURES.get_or_init(|| {
        let (amd64, arm64) = (Machine::Amd64, Machine::Arm64);
        let mut built = Vec::new();
        for (what, machine, architecture, arguments, link_mode) in [
            ("static", amd64, "amd64", "-ldflags=-s -w", LinkMode::Static),
            ("pie", amd64, "amd64", "-buildmode=pie", LinkMode::Pie),
            ("arm64", arm64, "arm64", "-ldflags=-s -w", LinkMode::Static),
            ("arm64-pie", arm64, "arm64", "-buildmode=pie", LinkMode::Pie),
        ] {
            let Some(path) = program::build(&format!("fixture-{what}"), architecture, &[arguments]) else {
                return Vec::new();
            };
            let data = std::fs::read(&path).expect("it was just built");
            built.push(Fixture { what, path, data, machine, link_mode });
        }
        // No section headers at all, as `sstrip` leaves a file.
        let nameless: Vec<_> = built
            .iter()
            .map(|fixture| {
                let mut data = fixture.data.clone();
                data[0x28..0x30].fill(0); // e_shoff
                data[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
                let (path, machine, link_mode) = (fixture.path.clone(), fixture.machine, fixture.link_mode);
                Fixture { what: "without sections", path, data, machine, link_mode }
            })
            .collect();
        built.extend(nameless);
        built
    })
}

fn parse(fixture: &Fixture) -> Executable<'_> {
    Executable::parse(&fixture.data)
        .unwrap_or_else(|error| panic!("{} {}: {error}", fixture.path.display(), fixture.what))
}

fn function<'a>(executable: &'a Executable<'_>, name: &str) -> Function<'a> {
    let functions = executable.functions().expect("it has a function table");
    let mut found = functions.matching(|candidate| candidate == name.as_bytes());
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

#[test]
fn a_stripped_program_says_how_it_was_built() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let info = executable.build_info();
        assert!(info.go_version.starts_with("go1."), "{info:?}");
        assert_eq!(info.main.as_ref().map(|main| main.path.as_str()), Some("goexe.test/fixture"));
        assert_eq!(executable.link_mode(), fixture.link_mode);
        assert_eq!(executable.machine(), fixture.machine);
    }
}

#[test]
fn layouts_are_what_the_program_itself_says() {
    // Layouts are the same on both machines, and this one runs the first.
    let Some(runs) = fixtures().first() else { return };
    for fixture in fixtures() {
        let executable = parse(fixture);
        let output = Command::new(&runs.path).output().expect("it runs");
        assert!(output.status.success(), "{output:?}");
        let truth: HashMap<String, u64> = String::from_utf8(output.stdout)
            .expect("it prints text")
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(field, offset)| (field.to_owned(), offset.parse().expect("a number")))
            .collect();
        let types = executable.types();
        let outer = types.find("main", "Outer").expect("it is allocated, so it has a descriptor");
        let path = |path: &[&str]| types.path(&outer, path).expect("the field is there");
        assert_eq!(path(&["List"]).offset, truth["Outer.List"]);
        assert_eq!(path(&["Fn"]).offset, truth["Outer.Fn"]);
        // Whichever of its names it has.
        assert_eq!(path(&["Earlier|Fn"]).offset, truth["Outer.Fn"]);
        assert_eq!(path(&["Fn|Later"]).steps[0].field, "Fn");
        // Promoted through a pointer and then a value.
        let name = path(&["Name"]);
        assert_eq!((name.dereferences, name.offset), (vec![truth["Outer.Inner"]], truth["Inner.Name"]));
        let next = path(&["Next", "Namespace"]);
        assert_eq!(next.dereferences, vec![truth["Outer.Inner"], truth["Inner.Next"]]);
        assert_eq!(next.offset, truth["Inner.Namespace"]);
        assert_eq!(name.typ.kind, Kind::String);
        let absent = types.path(&outer, &["Nope"]).expect_err("there is no such field");
        assert!(absent.to_string().contains("`Nope`"), "{absent}");
        assert!(types.path(&outer, &["F|n"]).is_err());
    }
}

#[test]
fn signatures_give_the_registers_of_the_calling_convention() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let types = executable.types();
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
        let locations = types.result_locations(&signature, true).expect("they have places");
        assert_eq!(locations, [registers(0, 1), registers(1, 2)]);
    }
}

#[test]
fn an_entry_is_probed_after_the_stack_check_on_a_push() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let functions = executable.functions().expect("it has a function table");
        for name in ["main.direct", "main.deep", "main.(*impl).Run"] {
            let function = function(&executable, name);
            let site = executable.entry_site(&functions, &function).expect("it has a frame");
            assert!(site.address > function.range.start, "{name}: the stack check comes first");
            let offset = executable.file_offset(site.address).expect("code is in the file");
            let code = &fixture.data[offset as usize..];
            match fixture.machine {
                Machine::Amd64 => {
                    assert_eq!((code[0], site.class), (0x55, Class::Emulated), "{name}: push %rbp");
                }
                // str x30, [sp, #-N]!, or mov sp, x20
                Machine::Arm64 => {
                    assert!(matches!(code[..4], [0xfe, _, _, 0xf8] | [0x9f, 0x02, 0x00, 0x91]), "{name}");
                    assert_eq!(site.class, Class::SingleStepped);
                }
            }
        }
    }
}

#[test]
fn the_stack_is_as_deep_as_the_frame_inside_a_function_and_not_at_its_entry() {
    for fixture in fixtures() {
        let executable = parse(fixture);
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
}

#[test]
fn every_kind_of_call_is_found_with_its_return_site() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let types = executable.types();
        let caller = function(&executable, "main.direct");
        let calls = executable.calls(&caller).expect("it decodes");
        let callee = function(&executable, "main.deep").range.start;
        let closure = types
            .path(&types.find("main", "Outer").expect("it has a descriptor"), &["Fn"])
            .expect("the field is there")
            .offset;
        let wanted = [
            ("direct", Callee::Direct(callee)),
            // Methods of an interface are sorted: Alpha, Name, Run. Where the itab came from does not matter.
            ("Worker.Alpha", Callee::Indirect { offset: 24, base: None }),
            ("Worker.Run", Callee::Indirect { offset: 40, base: None }),
            ("closure", Callee::Indirect { offset: 0, base: Some(closure) }),
        ];
        let is = |wanted: Callee, seen: Callee| match (wanted, seen) {
            (Callee::Indirect { offset, base: None }, Callee::Indirect { offset: seen, .. }) => {
                offset == seen
            }
            _ => wanted == seen,
        };
        for (what, callee) in wanted {
            let found: Vec<_> = calls.iter().filter(|call| is(callee, call.callee)).collect();
            assert_eq!(found.len(), 1, "{what}: {calls:x?}");
            let site = found[0].return_site;
            assert!(
                site.is_none_or(|site| caller.range.contains(&site) && site >= found[0].resume),
                "{what}"
            );
        }
        // The result of `deep` is compared at once, and is still in its register at the jump.
        let direct = calls.iter().find(|call| call.callee == Callee::Direct(callee)).expect("as above");
        assert!(direct.return_site.is_some() && direct.overwritten & 1 == 0, "{direct:x?}");
    }
}

#[test]
fn the_implementations_of_an_interface_are_found_with_their_methods_and_names() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let (types, functions) =
            (executable.types(), executable.functions().expect("it has a function table"));
        let itabs = types.itabs().expect("it has itabs");
        let concrete = |interface: &str| -> Vec<_> {
            let of = |typ: &goexe::Type| types.string(typ).expect("it has a name");
            itabs.iter().filter(|itab| of(&itab.interface) == interface).map(|itab| itab.concrete).collect()
        };
        let workers = concrete("main.Worker");
        assert_eq!(workers.len(), 1, "{}", fixture.what);
        assert_eq!(types.string(&workers[0]), Ok("*main.impl"));
        let methods = types.methods(&workers[0]).expect("it has methods");
        let names: Vec<_> = methods.iter().map(|method| method.name).collect();
        assert_eq!(names, ["Alpha", "Name", "Run"]);
        let name = functions.at(methods[1].code.expect("it is called")).expect("it is a function");
        assert_eq!(name.name, "main.(*impl).Name");
        let constant = executable.constant_string(&name).map(|(_, constant)| constant);
        assert_eq!(constant, Some("Implementation"), "{}", fixture.what);
        assert_eq!(executable.constant_string(&function(&executable, "main.deep")), None);
    }
}

#[test]
fn what_was_inlined_and_where_the_source_is_can_be_told() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let functions = executable.functions().expect("it has a function table");
        assert!(functions.names_contain("main.small") && !functions.names_contain("main.smal"));
        let direct = function(&executable, "main.direct");
        let inlined = functions.inlined(&direct);
        assert!(inlined.iter().any(|call| call.name == "main.small"), "{} {inlined:?}", fixture.what);
        assert!(inlined.iter().all(|call| direct.range.contains(&call.call)), "{inlined:x?}");
        let (file, line) = functions.source(&direct, direct.range.start).expect("it has a line");
        assert!(file.ends_with("fixture/main.go"), "{file}");
        let source = include_str!("fixture/main.go");
        assert!(source.lines().nth(line as usize - 1).is_some_and(|line| line.starts_with("func direct(")));
        // The interface's two words, then the pointer.
        let arguments = functions.arguments(&direct).expect("it takes some");
        assert_eq!(
            arguments.iter().map(|part| (part.offset, part.size)).collect::<Vec<_>>(),
            [(0, 8), (8, 8), (16, 8)]
        );
    }
}

#[test]
fn an_argument_is_kept_from_where_it_is_stored_on() {
    for fixture in fixtures() {
        let executable = parse(fixture);
        let functions = executable.functions().expect("it has a function table");
        let direct = function(&executable, "main.direct");
        let kept = |pc| [0, 1, 2, 3].map(|part| functions.argument_is_kept(&direct, part, pc));
        assert_eq!(kept(direct.range.start), [false; 4], "{}", fixture.what);
        // The first call: all that comes after needs both arguments. There is no fourth part.
        let returned = executable.calls(&direct).expect("it decodes")[0].resume;
        assert_eq!(kept(returned), [true, true, true, false], "{}", fixture.what);
    }
}

/// A file in memory, which counts what is read of it.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl ReadAt for Counted {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let Self(bytes, read) = self;
        let start = offset as usize;
        let there = bytes.get(start..start + buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
        buffer.copy_from_slice(there);
        read.fetch_add(buffer.len(), Ordering::Relaxed);
        Ok(())
    }
}

/// Answers from all parts of an executable, as text.
fn answers(executable: &Executable<'_>) -> Vec<String> {
    let functions = executable.functions().expect("it has a function table");
    let types = executable.types();
    let outer = types.find("main", "Outer").expect("it has this type");
    let mut answers = vec![
        format!("{:?} {:?}", executable.build_info(), executable.build_id()),
        format!("{:?} {:?}", types.itabs(), types.path(&outer, &["Next", "Next", "Name"])),
        format!("{:?}", functions.names_contain("main.direct")),
    ];
    for function in functions.matching(|name| name.starts_with(b"main.")) {
        let calls = executable.calls(&function);
        answers.push(format!("{:?} {calls:?}", executable.entry_site(&functions, &function)));
        answers.push(format!("{:?} {:?}", functions.inlined(&function), functions.arguments(&function)));
        answers.push(format!("{:?}", functions.source(&function, function.range.start)));
    }
    answers
}

#[test]
fn a_file_says_what_its_bytes_say_and_not_all_of_it_is_read() {
    for fixture in fixtures() {
        let read = Arc::new(AtomicUsize::new(0));
        let reader = Counted(fixture.data.clone(), Arc::clone(&read));
        let file = File::by(Box::new(reader), fixture.data.len() as u64, u64::MAX);
        let executable = Executable::parse(&file).unwrap_or_else(|error| panic!("{}: {error}", fixture.what));
        assert_eq!(answers(&executable), answers(&parse(fixture)), "{}", fixture.what);
        file.intact().expect("nothing went wrong");
        if fixture.what == "static" {
            let (read, all) = (read.load(Ordering::Relaxed), fixture.data.len());
            assert!(read < all, "{read} bytes of {all} were read");
        }
    }
}

#[test]
fn a_file_that_is_cut_meanwhile_is_an_error_and_no_shorter_answer() {
    let Some(fixture) = fixtures().first() else { return };
    for part in 1..8 {
        let cut = fixture.data[..fixture.data.len() * part / 8].to_vec();
        let file = File::by(Box::new(Counted(cut, Arc::default())), fixture.data.len() as u64, u64::MAX);
        let error = Executable::parse(&file).and_then(|executable| {
            let functions = executable.functions()?;
            let _ = functions.matching(|name| name.starts_with(b"main."));
            let _ = executable.types().itabs();
            executable.intact()
        });
        let error = error.expect_err("it is cut").to_string();
        assert!(error.contains("cut off while it was read"), "{part} eighths: {error}");
    }
}

#[test]
fn what_is_no_go_executable_is_refused_with_a_reason() {
    let Some(fixture) = fixtures().first() else { return };
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
            let _ = executable.constant_string(&function);
            let _ = executable.instructions(&function);
            let _ = functions.inlined(&function);
            let _ = functions.arguments(&function);
            let _ = functions.argument_is_kept(&function, 0, function.range.start);
            let _ = functions.source(&function, function.range.start);
        }
    }
    {
        let types = executable.types();
        let _ = types.itabs();
        for name in ["Outer", "Inner", "impl", "Nope"] {
            let Ok(typ) = types.find("main", name) else { continue };
            let _ = types.path(&typ, &["Next", "Next", "Name"]);
            for field in types.fields(&typ).unwrap_or_default() {
                let _ = types.string(&field.typ);
                if let Ok(signature) = types.signature(&field.typ) {
                    let _ = types.parameter_locations(&signature.parameters, false);
                    let _ = types.result_locations(&signature, true);
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
        let Some(fixture) = fixtures().first() else { return Ok(()) };
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
        let Some(fixture) = fixtures().first() else { return Ok(()) };
        exercise(&fixture.data[..cut.index(fixture.data.len())]);
    }
}

#[test]
fn debug_information_says_what_a_function_takes() {
    let mut asked = 0;
    for fixture in fixtures() {
        let executable = parse(fixture);
        let names = ["main.direct", "main.(*impl).Run"].into_iter().collect();
        let info = executable.debug_info(&[].into(), &names).expect("it is well-formed");
        assert_eq!(info.is_none(), executable.stripped(), "{}", fixture.what);
        let Some(info) = info else { continue };
        asked += 1;
        let parameters = |name: &str| -> Vec<_> {
            let function = info.functions.get(name).unwrap_or_else(|| panic!("{name}: {info:?}"));
            assert_eq!(function.address, self::function(&executable, name).range.start, "{name}");
            function.parameters.iter().map(|name| name.as_deref().unwrap_or("?")).collect()
        };
        assert_eq!(parameters("main.direct"), ["main.Worker", "*main.Outer"], "{}", fixture.what);
        // The receiver comes first, results are left out.
        assert_eq!(
            parameters("main.(*impl).Run"),
            ["*main.impl", "fmt.Stringer", "*main.Outer", "string", "[2]uint64", "float64"],
            "{}",
            fixture.what
        );
    }
    assert!(asked > 0 || fixtures().is_empty(), "no fixture has debug information");
}

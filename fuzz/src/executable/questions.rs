//! Everything that can be asked of an executable, by target.

use std::hint::black_box;

use goexe::{Argument, BuildInfo, Executable, Kind, Type, Types};
use gotrace::{Plan, Program as _, plan};
use kube_scheduler::KubeScheduler;

/// Functions, itabs and types that are asked about in one case.
const MAX_FUNCTIONS: usize = 6;
const MAX_ITABS: usize = 12;
/// How far types are followed through their fields.
const MAX_DEPTH: usize = 3;

/// What the headers say.
pub fn elf(data: &[u8]) {
    let Ok(executable) = Executable::parse(data) else { return };
    let info = executable.build_info();
    black_box((info.go_minor(), info.module_version("goexe.test/fixture")));
    black_box((executable.machine(), executable.link_mode(), executable.stripped(), executable.build_id()));
    for address in [0, 0x40_0000, u64::MAX] {
        black_box(executable.file_offset(address));
    }
    black_box(executable.functions().map(|functions| functions.len()).is_ok());
}

/// What the function table says, and the code.
pub fn functions(data: &[u8]) {
    let Ok(executable) = Executable::parse(data) else { return };
    let Ok(functions) = executable.functions() else { return };
    black_box((functions.is_empty(), functions.names_contain("main.small")));
    for function in functions.matching(|name| name.starts_with(b"main.")).iter().take(MAX_FUNCTIONS) {
        let start = function.range.start;
        let site = executable.entry_site(&functions, function);
        black_box(executable.calls(function).is_ok());
        black_box(executable.return_instructions(function).is_ok());
        black_box(executable.constant_string(function));
        black_box(executable.instructions(function).is_ok());
        black_box(functions.inlined(function));
        black_box(functions.arguments(function));
        black_box(functions.first_stack_change(function));
        for pc in [start, site.map_or(0, |site| site.address), function.range.end.wrapping_sub(1)] {
            black_box((functions.source(function, pc), functions.stack_depth(function, pc)));
            black_box((0..12).any(|part| functions.argument_is_kept(function, part, pc)));
            black_box(functions.at(pc).is_some());
        }
    }
}

/// What the type descriptors say.
pub fn types(data: &[u8]) {
    let Ok(executable) = Executable::parse(data) else { return };
    let types = executable.types();
    let mut roots = Vec::new();
    for name in ["Outer", "Inner", "impl", "Worker", "Nope"] {
        roots.extend(types.find("main", name));
    }
    for name in ["*main.Outer", "string", "error", "fmt.Stringer"] {
        roots.extend(types.by_name(name));
    }
    roots.extend(types.find_unnamed("func(*main.Outer, string) (int, error)"));
    for typ in &roots {
        about(&types, typ, MAX_DEPTH);
        for path in [&["Next", "Next", "Name"][..], &["Namespace"], &["List", "Nope"], &["Absent"]] {
            black_box(types.path(typ, path).is_ok());
        }
    }
    black_box(types.parameter_locations(&roots, true).is_ok());
    black_box(types.fit(&roots, Some(&roots), true, &[Argument { offset: 0, size: 8 }]).is_ok());
    let itabs = types.itabs().unwrap_or_default();
    for itab in itabs.iter().take(MAX_ITABS) {
        about(&types, &itab.interface, 1);
        about(&types, &itab.concrete, 1);
    }
}

/// What kube-scheduler's table of functions finds in it.
pub fn plan(data: &[u8]) {
    black_box(BuildInfo::of(data).map(|info| plan::may_have(&info, KubeScheduler::MARKERS)).is_ok());
    let Ok(executable) = Executable::parse(data) else { return };
    let Ok(functions) = executable.functions() else { return };
    black_box(plan::has::<KubeScheduler>(&functions));
    black_box(Plan::<KubeScheduler>::choose(&executable, &functions).is_ok());
}

fn about(types: &Types<'_>, typ: &Type, depth: usize) {
    black_box((types.string(typ).is_ok(), types.package(typ).is_ok(), types.array_len(typ).is_ok()));
    black_box(types.methods(typ).is_ok());
    let mut next = Vec::new();
    match typ.kind {
        Kind::Struct => next.extend(types.fields(typ).unwrap_or_default().iter().map(|field| field.typ)),
        Kind::Interface => {
            next.extend(types.interface_methods(typ).unwrap_or_default().iter().map(|(_, typ)| *typ));
        }
        Kind::Func => {
            if let Ok(signature) = types.signature(typ) {
                black_box(types.parameter_locations(&signature.parameters, false).is_ok());
                black_box(types.result_locations(&signature, true).is_ok());
                black_box(types.fit(&signature.parameters, Some(&signature.results), false, &[]).is_ok());
                let first = [Argument { offset: 96, size: 8 }];
                black_box(types.fit(&signature.parameters, None, true, &first).is_ok());
            }
        }
        _ => next.extend(types.element(typ)),
    }
    if depth > 0 {
        for typ in next.iter().take(MAX_FUNCTIONS) {
            about(types, typ, depth - 1);
        }
    }
}

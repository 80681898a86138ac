//! What reading an executable takes, step by step: `cargo xtask bench-read`.
//!
//! Times are medians; `max alloc` is the most memory that a step holds at once. What is read of the file is kept, so it counts
//! where the file is opened: in the first step and the last. `cargo xtask matrix schedulers` shows the resident peak of a whole
//! `inspect`.

use std::{env, path::PathBuf};

use divan::{AllocProfiler, Bencher, black_box};
use goexe::{Executable, File};
use gotrace::Plan;
use kube_scheduler::KubeScheduler;

/// Names the executable.
const FILE: &str = "SCHEDSPAN_BENCH_FILE";
const MAX_FILE: u64 = 1 << 30;

#[global_allocator]
static ALLOCATOR: AllocProfiler = AllocProfiler::system();

fn main() {
    divan::main();
}

fn file() -> File {
    let path = env::var_os(FILE).map(PathBuf::from);
    let path = path.unwrap_or_else(|| panic!("{FILE} names no executable: run `cargo xtask bench-read`"));
    File::open(&path, MAX_FILE).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

#[divan::bench]
fn open(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| Executable::parse(black_box(&file())).map(|executable| executable.link_mode()));
}

#[divan::bench]
fn find_a_function_by_name(bencher: Bencher<'_, '_>) {
    let file = file();
    let executable = Executable::parse(&file).expect("a Go executable");
    bencher.bench_local(|| {
        let functions = executable.functions().expect("it has functions");
        functions.matching(|name| name == b"runtime.main").len()
    });
}

#[divan::bench]
fn find_a_function_by_address(bencher: Bencher<'_, '_>) {
    let file = file();
    let executable = Executable::parse(&file).expect("a Go executable");
    let functions = executable.functions().expect("it has functions");
    let address = functions.matching(|name| name == b"runtime.main")[0].range.start;
    bencher.bench_local(|| functions.at(black_box(address)).map(|function| function.range));
}

#[divan::bench]
fn walk_to_a_field(bencher: Bencher<'_, '_>) {
    let file = file();
    let executable = Executable::parse(&file).expect("a Go executable");
    bencher.bench_local(|| {
        let types = executable.types();
        let pod = types.find("k8s.io/api/core/v1", "Pod").expect("a scheduler knows Pods");
        types.path(&pod, &["Spec", "SchedulerName"]).map(|path| path.offset)
    });
}

#[divan::bench]
fn list_all_implementations(bencher: Bencher<'_, '_>) {
    let file = file();
    let executable = Executable::parse(&file).expect("a Go executable");
    bencher.bench_local(|| executable.types().itabs().map(|itabs| itabs.len()));
}

#[divan::bench]
fn make_the_whole_plan(bencher: Bencher<'_, '_>) {
    bencher.bench_local(|| Plan::<KubeScheduler>::of(black_box(&file())).map(|plan| plan.sites.len()));
}

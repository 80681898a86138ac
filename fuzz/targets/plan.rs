#![no_main]

use std::hint::black_box;

use goexe_fuzz::plan::{self, Plan};

libfuzzer_sys::fuzz_target!(|case: &[u8]| goexe_fuzz::run(case, |data| {
    black_box(plan::has_scheduler(data));
    black_box(Plan::of(data).is_ok());
}));

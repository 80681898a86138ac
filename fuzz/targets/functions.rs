#![no_main]

use goexe_fuzz::cases::questions;

libfuzzer_sys::fuzz_target!(|case: &[u8]| goexe_fuzz::run(case, questions::functions));

#![no_main]

use fuzz::executable::{self, questions};

libfuzzer_sys::fuzz_target!(|case: &[u8]| executable::run(case, questions::functions));

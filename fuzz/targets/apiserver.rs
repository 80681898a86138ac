#![no_main]

libfuzzer_sys::fuzz_target!(|case: &[u8]| {
    fuzz::start();
    fuzz::apiserver::run(case);
});

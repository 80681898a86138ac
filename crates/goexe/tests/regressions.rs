//! What no file may claim is refused by name. Fuzzing found these; cases of it are in `fuzz/regressions`.

mod program;

use std::{fs, sync::LazyLock};

use goexe::Executable;

/// The program that tests damage. `None`, with a printed reason, if there is no Go.
static PROGRAM: LazyLock<Option<Vec<u8>>> = LazyLock::new(|| {
    let path = program::build("regressions", "amd64", &["-ldflags=-s -w"])?;
    Some(fs::read(path).expect("it was just built"))
});

#[test]
fn more_headers_than_a_linker_writes_are_refused() {
    let Some(program) = &*PROGRAM else { return };
    // e_phnum; e_phoff as it is, so that the headers go on into the file's contents.
    let mut data = program.clone();
    data[0x38..0x3a].copy_from_slice(&1000u16.to_le_bytes());
    let error = Executable::parse(&data).expect_err("these are too many").to_string();
    assert!(error.contains("program headers at 0x40") && error.contains("e_phnum, is 1000"), "{error}");
}

#[test]
fn segments_of_more_bytes_than_the_file_are_refused() {
    const HEADER: usize = 56;
    let Some(program) = &*PROGRAM else { return };
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
    let Some(program) = &*PROGRAM else { return };
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

//! The allocator as it is used: by all threads of a process.

#![forbid(unsafe_code)]

use std::{sync::mpsc, thread};

use allocator::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

#[test]
fn what_one_thread_allocates_another_reads_grows_and_frees() {
    let (sender, receiver) = mpsc::channel::<Vec<String>>();
    let makers: Vec<_> = (0..4)
        .map(|maker: usize| {
            let sender = sender.clone();
            thread::spawn(move || {
                if maker.is_multiple_of(2) {
                    allocator::keep_blocks();
                }
                for round in 0..500 {
                    let text = |length: usize| (maker * 1_000 + round).to_string().repeat(length);
                    let texts = (0..round % 40).map(|length| text(1 << (length % 12))).collect();
                    sender.send(texts).expect("the reader waits for it");
                }
            })
        })
        .collect();
    drop(sender);
    allocator::keep_blocks();
    let mut lists = 0;
    for mut texts in receiver {
        for (length, text) in texts.iter_mut().enumerate() {
            let number = text[..text.len() >> (length % 12)].to_owned();
            text.push_str(&number);
            assert_eq!(*text, number.repeat((1 << (length % 12)) + 1));
        }
        lists += 1;
    }
    makers.into_iter().for_each(|maker| maker.join().expect("it does not panic"));
    assert_eq!(lists, 4 * 500);
}

#[test]
fn what_is_allocated_with_zeros_has_none_of_the_bytes_before() {
    allocator::keep_blocks();
    for size in 1..2_000_usize {
        drop(vec![0xff_u8; size]);
        assert!(vec![0_u8; size].iter().all(|byte| *byte == 0), "{size}");
    }
}

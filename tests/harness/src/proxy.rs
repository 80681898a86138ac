//! TCP connections that are handed on, and that can be cut.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Result;

/// Hands on every connection, as long as xtask runs.
pub struct Proxy {
    /// Where it listens, as `host:port`.
    pub address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Listens at an address, such as `127.0.0.1:0`, for connections to another one.
    ///
    /// # Errors
    ///
    /// If it cannot listen.
    pub fn start(address: &str, to: String) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?.to_string();
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let all = Arc::clone(&open);
        thread::spawn(move || {
            for from in listener.incoming().map_while(Result::ok) {
                let Ok(to) = TcpStream::connect(&to) else { continue };
                let (Ok(from2), Ok(to2), Ok(cut)) = (from.try_clone(), to.try_clone(), from.try_clone())
                else {
                    continue;
                };
                all.lock().unwrap_or_else(PoisonError::into_inner).push(cut);
                for (mut reader, mut writer) in [(from, to), (to2, from2)] {
                    thread::spawn(move || {
                        // A connection that breaks is over.
                        let _ = io::copy(&mut reader, &mut writer);
                        let _ = writer.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Ok(Self { address, open })
    }

    /// Breaks all connections; says how many there have been since the last time.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in &open {
            // It may be over already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        open.len()
    }
}

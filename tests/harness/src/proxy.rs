//! A TCP proxy whose connections can be cut.

use std::{
    io,
    net::{Shutdown, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use anyhow::Result;

/// A proxy that runs until this process ends.
pub struct Proxy {
    /// The address it listens at, as `host:port`.
    pub address: String,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// Listens at `address`, such as `127.0.0.1:0`, and connects each client with `to`.
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
                        // A broken connection is not an error here.
                        let _ = io::copy(&mut reader, &mut writer);
                        let _ = writer.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        Ok(Self { address, open })
    }

    /// Cuts all connections, and returns the number of connections since the last call.
    pub fn cut(&self) -> usize {
        let open = std::mem::take(&mut *self.open.lock().unwrap_or_else(PoisonError::into_inner));
        for stream in &open {
            // It may have ended already.
            let _ = stream.shutdown(Shutdown::Both);
        }
        open.len()
    }
}

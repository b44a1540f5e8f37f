//! A host on the way between two processes: it hears everything, and may lead elsewhere.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard},
    thread,
};

pub(super) struct Relay {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

struct State {
    to: SocketAddr,
    open: Vec<TcpStream>,
    /// The bytes from each client, the first client first.
    heard: Vec<Vec<u8>>,
}

impl Relay {
    pub(super) fn to(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State { to, open: Vec::new(), heard: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                pass_on(near, &shared);
            }
        });
        Self { address, state }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Leads a connection that was made to another port.
    pub(super) fn lead(&self, near: TcpStream) {
        pass_on(near, &self.state);
    }

    /// Cuts all connections, and leads those that come to another process.
    pub(super) fn turn_to(&self, to: SocketAddr) {
        let mut state = self.lock();
        state.to = to;
        for stream in state.open.drain(..) {
            // An error means that it is closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// The bytes from the first client.
    pub(super) fn heard_of_clients(&self) -> Vec<u8> {
        self.lock().heard.first().cloned().unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

fn pass_on(near: TcpStream, state: &Arc<Mutex<State>>) {
    let mut shared = state.lock().unwrap();
    let Ok(far) = TcpStream::connect(shared.to) else { return };
    let of = shared.heard.len();
    shared.heard.push(Vec::new());
    shared.open.extend([near.try_clone().unwrap(), far.try_clone().unwrap()]);
    drop(shared);
    let (from, back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    thread::spawn(move || copy(from, back, |_| ()));
    let state = Arc::clone(state);
    thread::spawn(move || copy(near, far, |bytes| state.lock().unwrap().heard[of].extend(bytes)));
}

fn copy(mut from: TcpStream, mut to: TcpStream, mut hear: impl FnMut(&[u8])) {
    let mut buffer = [0; 16 << 10];
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        hear(&buffer[..len]);
        if to.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

//! An HTTP/1.1 server for clients that may be hostile.
//!
//! Connections are bounded in number, in all and for each peer, and in time; headers in bytes and in time; answers that are not read yet in
//! bytes. A server that is full closes the connection that has waited longest without a request, so that a peer with many connections does
//! not keep others out.

use std::{
    collections::HashMap,
    convert::Infallible,
    net::IpAddr,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::HttpBody as _,
    extract::Request,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hyper::{
    body::Incoming,
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use telemetry::Counter;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;
use tracing::debug;

/// Limit for the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(2);
/// Limit for the last answers at the end of a connection or of the server.
const LAST: Duration = Duration::from_secs(2);
/// Pause after an error of the listener, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// Answers below this size are not counted: the connections bound them.
const SMALL_ANSWER: usize = 64 << 10;
/// The unit in which answers are counted, bytes.
const UNIT: usize = 1 << 10;

/// What the clients of a server may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most connections of one address.
    pub per_peer: usize,
    /// Most bytes of a header, at least 8 KiB; as much of a body is read at once.
    pub header_bytes: usize,
    /// Longest time until a header is complete, from the end of the previous answer on: the limit of an idle connection.
    pub header_time: Duration,
    /// Longest time of a connection. A request that is in progress then has two more seconds.
    pub connection_time: Duration,
    /// Most bytes of large answers that their clients have not read yet. An answer that has no room is a 503.
    pub answer_bytes: usize,
}

/// How connections are served.
#[derive(Clone)]
pub struct Server {
    /// What clients may take.
    pub limits: Limits,
    /// With TLS, or without.
    pub tls: Option<TlsAcceptor>,
    /// Counts connections that came to nothing: too many, too slow or with a failed handshake.
    pub refused: Counter,
}

impl Server {
    /// Serves a router until `stop` completes, and then the requests in flight.
    pub async fn serve(self, listener: TcpListener, router: Router, stop: impl Future<Output = ()>) {
        let gate = Gate::new(self.limits);
        let (end, ending) = watch::channel(());
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, address)) => (stream, address.ip().to_canonical()),
                    Err(error) => {
                        debug!("no connection: {error}");
                        self.refused.inc();
                        gate.make_room();
                        sleep(PAUSE).await;
                        continue;
                    }
                },
                Some(_) = connections.join_next() => continue,
                () = &mut stop => break,
            };
            let Some(seat) = gate.enter(peer, &self.refused) else {
                self.refused.inc();
                continue;
            };
            connections.spawn(self.clone().connection(stream, seat, router.clone(), ending.clone()));
        }
        drop((listener, end));
        let _ = timeout(LAST, async { while connections.join_next().await.is_some() {} }).await;
    }

    async fn connection(self, stream: TcpStream, seat: Seat, router: Router, ending: watch::Receiver<()>) {
        // An answer is one write, so Nagle's algorithm would only delay it. It fails where the peer is gone.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.requests(TokioIo::new(stream), &seat, router, ending).await;
        };
        let accepted = tokio::select! {
            accepted = timeout(HANDSHAKE, tls.accept(stream)) => accepted.ok().and_then(Result::ok),
            () = seat.inner.closed.notified() => return,
        };
        match accepted {
            Some(stream) => self.requests(TokioIo::new(stream), &seat, router, ending).await,
            None => {
                self.refused.inc();
            }
        }
    }

    async fn requests(
        &self,
        stream: impl Read + Write + Unpin,
        seat: &Seat,
        router: Router,
        mut ending: watch::Receiver<()>,
    ) {
        let Limits {
            header_bytes,
            header_time,
            connection_time,
            connections: _,
            per_peer: _,
            answer_bytes: _,
        } = self.limits;
        let service = service_fn(|request: Request<Incoming>| {
            let busy = Busy::new(Arc::clone(&seat.inner));
            let answer = router.clone().oneshot(request.map(axum::body::Body::new));
            async move {
                let answer: Result<Response, Infallible> = answer.await;
                drop(busy);
                Ok::<_, Infallible>(self.within(seat, answer?))
            }
        });
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(header_time).max_buf_size(header_bytes);
        let mut connection = pin!(http.serve_connection(stream, service));
        tokio::select! {
            // Answers are counted where they are made, however the connection ends.
            _ = connection.as_mut() => return,
            () = seat.inner.closed.notified() => return,
            () = sleep(connection_time) => {}
            _ = ending.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            _ = timeout(LAST, connection) => {}
            () = seat.inner.closed.notified() => {}
        }
    }

    /// The answer if there is room for it, until the client has read it.
    fn within(&self, seat: &Seat, answer: Response) -> Response {
        // A stream has no size: its parts are made as they are read.
        let bytes =
            answer.body().size_hint().exact().map_or(0, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let counted = if bytes < SMALL_ANSWER { 0 } else { bytes.min(self.limits.answer_bytes) };
        if seat.hold(counted) {
            return answer;
        }
        self.refused.inc();
        let why = "other clients have not read their answers yet; try again later\n";
        (StatusCode::SERVICE_UNAVAILABLE, why).into_response()
    }
}

/// Who is connected.
struct Gate {
    limits: Limits,
    /// A permit for each [`UNIT`] of an answer.
    room: Arc<Semaphore>,
    /// The oldest first.
    seats: Mutex<Vec<Arc<Inner>>>,
}

struct Inner {
    peer: IpAddr,
    /// Whether a request is being answered.
    busy: AtomicBool,
    /// The server closes the connection.
    closed: Notify,
    /// Room of the last two answers: a client may ask again before it has read the first one, but gets nothing more then.
    answers: Mutex<[Option<OwnedSemaphorePermit>; 2]>,
}

/// A connection that is counted, until this is dropped.
struct Seat {
    gate: Arc<Gate>,
    inner: Arc<Inner>,
}

impl Seat {
    /// Takes room for an answer, instead of the one before the last. Returns whether there is any.
    fn hold(&self, bytes: usize) -> bool {
        let mut answers = self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.rotate_left(1);
        answers[1] = None;
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX);
        answers[1] = Arc::clone(&self.gate.room).try_acquire_many_owned(units).ok();
        answers[1].is_some()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.gate.seats().retain(|seat| !Arc::ptr_eq(seat, &self.inner));
    }
}

/// A request that is being answered, until this is dropped.
struct Busy(Arc<Inner>);

impl Busy {
    fn new(seat: Arc<Inner>) -> Self {
        seat.busy.store(true, Ordering::Relaxed);
        Self(seat)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::Relaxed);
    }
}

impl Gate {
    fn new(limits: Limits) -> Arc<Self> {
        let room = Arc::new(Semaphore::new(limits.answer_bytes / UNIT));
        Arc::new(Self { limits, room, seats: Mutex::default() })
    }

    /// A seat for a connection of this peer; `None` if there is none and none can be taken from others.
    fn enter(self: &Arc<Self>, peer: IpAddr, refused: &Counter) -> Option<Seat> {
        let Limits { connections, per_peer, .. } = self.limits;
        let mut seats = self.seats();
        let own = seats.iter().filter(|seat| seat.peer == peer).count();
        if own >= per_peer {
            let oldest = seats.iter().position(|seat| seat.peer == peer && seat.is_idle())?;
            close(&mut seats, oldest);
            refused.inc();
        } else if seats.len() >= connections {
            let oldest = seats.iter().position(|seat| seat.is_idle());
            let oldest = oldest.or_else(|| of_the_greediest(&seats, own + 1))?;
            close(&mut seats, oldest);
            refused.inc();
        }
        let inner = Arc::new(Inner {
            peer,
            busy: AtomicBool::default(),
            closed: Notify::new(),
            answers: Mutex::default(),
        });
        seats.push(Arc::clone(&inner));
        Some(Seat { gate: Arc::clone(self), inner })
    }

    /// Closes the oldest idle connection: the process has no descriptor left.
    fn make_room(&self) {
        let mut seats = self.seats();
        if let Some(oldest) = seats.iter().position(|seat| seat.is_idle()) {
            close(&mut seats, oldest);
        }
    }

    fn seats(&self) -> MutexGuard<'_, Vec<Arc<Inner>>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn is_idle(&self) -> bool {
        !self.busy.load(Ordering::Relaxed)
    }
}

fn close(seats: &mut Vec<Arc<Inner>>, index: usize) {
    seats.remove(index).closed.notify_one();
}

/// The oldest connection of the peer with the most of them, if these are more than `than`.
fn of_the_greediest(seats: &[Arc<Inner>], than: usize) -> Option<usize> {
    let mut numbers = HashMap::<IpAddr, usize>::new();
    seats.iter().for_each(|seat| *numbers.entry(seat.peer).or_default() += 1);
    let (greediest, _) =
        numbers.into_iter().filter(|(_, number)| *number > than).max_by_key(|(_, number)| *number)?;
    seats.iter().position(|seat| seat.peer == greediest)
}

#[cfg(test)]
mod tests {
    use std::{future::pending, net::SocketAddr};

    use axum::routing::get;
    use telemetry::Registry;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpSocket,
    };

    use super::*;

    const LIMITS: Limits = Limits {
        connections: 8,
        per_peer: 4,
        header_bytes: 8 << 10,
        header_time: Duration::from_millis(300),
        connection_time: Duration::from_secs(60),
        answer_bytes: 128 << 20,
    };
    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn serving(limits: Limits) -> SocketAddr {
        let refused = Registry::default().counter("refused", "Refused");
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let router = Router::new()
            .route("/", get(async || "answer"))
            .route("/slow", get(async || pending::<&str>().await))
            .route("/large", get(async || "x".repeat(64 << 20)));
        tokio::spawn(Server { limits, tls: None, refused }.serve(listener, router, pending()));
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    /// A connection from an address of its own.
    async fn from(peer: [u8; 4], server: SocketAddr) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((peer, 0))).unwrap();
        socket.connect(server).await.unwrap()
    }

    async fn answers(stream: &mut TcpStream) -> bool {
        if stream.write_all(REQUEST).await.is_err() {
            return false;
        }
        let mut answer = Vec::new();
        while !answer.ends_with(b"answer") {
            if stream.read_buf(&mut answer).await.unwrap_or_default() == 0 {
                return false;
            }
        }
        answer.starts_with(b"HTTP/1.1 200")
    }

    async fn is_closed(stream: &mut TcpStream) -> bool {
        let mut rest = Vec::new();
        timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await.is_ok()
    }

    #[tokio::test]
    async fn a_peer_that_holds_its_connections_loses_the_oldest_to_its_next() {
        let server = serving(Limits { header_time: Duration::from_secs(60), ..LIMITS }).await;
        let mut held = Vec::new();
        for _ in 0..LIMITS.per_peer {
            let mut stream = from([127, 0, 0, 2], server).await;
            assert!(answers(&mut stream).await);
            held.push(stream);
        }
        let mut other = from([127, 0, 0, 3], server).await;
        assert!(answers(&mut other).await);
        let mut next = from([127, 0, 0, 2], server).await;
        assert!(answers(&mut next).await);
        assert!(is_closed(&mut held[0]).await);
        assert!(answers(&mut other).await, "another peer's connection was closed");
    }

    #[tokio::test]
    async fn a_full_server_takes_the_next_connection() {
        for path in ["/", "/slow"] {
            let server = serving(Limits { header_time: Duration::from_secs(60), ..LIMITS }).await;
            let mut held = Vec::new();
            for number in 0..LIMITS.connections {
                let mut stream = from([127, 0, 1, u8::try_from(number / 4).unwrap() + 1], server).await;
                stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
                held.push(stream);
            }
            sleep(Duration::from_millis(100)).await;
            assert!(answers(&mut from([127, 0, 0, 3], server).await).await, "held by requests of {path}");
        }
    }

    #[tokio::test]
    async fn a_slow_header_ends_its_connection() {
        let server = serving(LIMITS).await;
        let mut stream = from([127, 0, 0, 2], server).await;
        let mut cut = false;
        for byte in REQUEST.iter().cycle().filter(|byte| **byte != b'\n').take(400) {
            sleep(Duration::from_millis(20)).await;
            cut |= stream.write_all(&[*byte]).await.is_err();
        }
        assert!(cut, "a header of 8 s was waited for");
    }

    #[tokio::test]
    async fn a_large_header_is_refused() {
        let server = serving(LIMITS).await;
        let mut stream = from([127, 0, 0, 2], server).await;
        let header = format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(LIMITS.header_bytes));
        let _ = stream.write_all(header.as_bytes()).await;
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_with_a_slow_reader_ends() {
        let server = serving(Limits { connection_time: Duration::from_millis(200), ..LIMITS }).await;
        let mut stream = from([127, 0, 0, 2], server).await;
        stream.write_all(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        sleep(LAST + Duration::from_secs(1)).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        assert!(answer.len() < 64 << 20, "all {} bytes came", answer.len());
    }

    #[tokio::test]
    async fn answers_that_are_not_read_are_bounded_and_their_room_comes_back() {
        let server = serving(Limits { answer_bytes: 100 << 20, ..LIMITS }).await;
        let ask = b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n";
        let status = async |stream: &mut TcpStream| {
            let mut head = [0; 12];
            stream.read_exact(&mut head).await.unwrap();
            String::from_utf8(head.to_vec()).unwrap()
        };
        let mut first = from([127, 0, 0, 2], server).await;
        first.write_all(ask).await.unwrap();
        assert_eq!(status(&mut first).await, "HTTP/1.1 200");
        let mut second = from([127, 0, 0, 3], server).await;
        second.write_all(ask).await.unwrap();
        assert_eq!(status(&mut second).await, "HTTP/1.1 503");
        // One that is small needs no room.
        assert!(answers(&mut from([127, 0, 0, 3], server).await).await);
        drop(first);
        for _ in 0..100 {
            let mut third = from([127, 0, 0, 3], server).await;
            third.write_all(ask).await.unwrap();
            if status(&mut third).await == "HTTP/1.1 200" {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
        panic!("the room of a closed connection did not come back");
    }

    #[tokio::test]
    async fn requests_in_flight_are_answered_at_the_end() {
        let refused = Registry::default().counter("refused", "Refused");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = listener.local_addr().unwrap();
        let stop = Arc::new(Notify::new());
        let asked = Arc::new(Notify::new());
        let router = Router::new().route("/", {
            let (stop, asked) = (Arc::clone(&stop), Arc::clone(&asked));
            get(async move || {
                stop.notify_one();
                asked.notified().await;
                "answer"
            })
        });
        let serving = tokio::spawn({
            let stop = Arc::clone(&stop);
            async move {
                let limits = LIMITS;
                Server { limits, tls: None, refused }
                    .serve(listener, router, async { stop.notified().await })
                    .await;
            }
        });
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(REQUEST).await.unwrap();
        sleep(Duration::from_millis(100)).await;
        asked.notify_one();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("answer"), "{answer}");
        serving.await.unwrap();
    }
}

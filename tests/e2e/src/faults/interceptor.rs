//! A server between schedspan and the API server, which refuses requests and forges answers.

use std::{
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    runtime::Runtime,
    sync::watch,
};
use tokio_rustls::{
    TlsAcceptor, TlsConnector,
    rustls::{
        ClientConfig, RootCertStore, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    },
};

use crate::export::certificates::Files;

/// Most bytes of a request's head.
const MAX_HEAD: usize = 64 << 10;
/// In the address of a watch of Pods without a Node.
const UNASSIGNED: &str = "fieldSelector=spec.nodeName%3D&";

/// Runs until it is dropped.
pub(super) struct Interceptor {
    /// Where it listens, as `host:port`.
    pub(super) address: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

struct Shared {
    /// The real API server.
    server: String,
    connector: TlsConnector,
    /// A token that the real API server accepts.
    token: String,
    rules: Mutex<Rules>,
    counts: Mutex<Counts>,
    /// Changes when all connections are to be cut.
    cut: watch::Sender<()>,
}

/// What it does with the next connection.
struct Rules {
    acceptor: TlsAcceptor,
    /// The only token that it accepts.
    token: String,
    /// The answer to each watch, if that is not the API server's.
    forged: Option<String>,
}

/// Requests to watch Pods without a Node, by what became of them.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) forged: usize,
    pub(super) passed: usize,
    /// Requests of any kind with another token.
    pub(super) refused: usize,
}

impl Interceptor {
    /// Starts it before the API server of a kubeconfig, with the token in it, and serves with these certificates.
    pub(super) fn start(kubeconfig: &Value, files: &Files, token: &str) -> Result<Self> {
        let cluster = &kubeconfig["clusters"][0]["cluster"];
        let text = |value: &Value| value.as_str().map(str::to_owned).context("the kubeconfig is incomplete");
        let server = text(&cluster["server"])?.replace("https://", "");
        let authority = text(&cluster["certificate-authority"])?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(authority)? {
            roots.add(certificate?)?;
        }
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let runtime = Runtime::new()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?.to_string();
        let rules = Rules { acceptor: acceptor(files)?, token: token.to_owned(), forged: None };
        let shared = Arc::new(Shared {
            server,
            connector: TlsConnector::from(Arc::new(client)),
            token: text(&kubeconfig["users"][0]["user"]["token"])?,
            rules: Mutex::new(rules),
            counts: Mutex::default(),
            cut: watch::Sender::new(()),
        });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, _runtime: runtime })
    }

    /// Answers each watch with this, or as the API server does.
    pub(super) fn forge(&self, answer: Option<String>) {
        self.shared.rules().forged = answer;
        *self.shared.counts() = Counts::default();
        self.cut();
    }

    /// Accepts only this token from now on.
    pub(super) fn accept(&self, token: &str) {
        token.clone_into(&mut self.shared.rules().token);
        *self.shared.counts() = Counts::default();
        self.cut();
    }

    /// Serves with other certificates from now on.
    pub(super) fn serve(&self, files: &Files) -> Result<()> {
        self.shared.rules().acceptor = acceptor(files)?;
        *self.shared.counts() = Counts::default();
        self.cut();
        Ok(())
    }

    /// What became of requests since the last change of the rules.
    pub(super) fn counts(&self) -> Counts {
        *self.shared.counts()
    }

    fn cut(&self) {
        self.shared.cut.send_replace(());
    }
}

impl Shared {
    fn rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn acceptor(files: &Files) -> Result<TlsAcceptor> {
    let certificates = CertificateDer::pem_file_iter(&files.server)?.collect::<Result<Vec<_>, _>>()?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(certificates, PrivateKeyDer::from_pem_file(&files.server_key)?)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            tokio::select! {
                // schedspan ends connections when it likes.
                _ended = connection(stream, &shared) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

/// Serves one request, which is the only one of its connection.
async fn connection(stream: TcpStream, shared: &Shared) -> Result<()> {
    let (acceptor, token, forged) = {
        let Rules { acceptor, token, forged } = &*shared.rules();
        (acceptor.clone(), token.clone(), forged.clone())
    };
    let mut client = acceptor.accept(stream).await?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < MAX_HEAD, "a request has a head without end");
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let Some((request, headers)) = head.split_once("\r\n") else { bail!("a request without headers") };
    let is_header =
        |line: &str, name: &str| line.split(':').next().is_some_and(|of| of.eq_ignore_ascii_case(name));
    let authorized = headers
        .lines()
        .any(|line| is_header(line, "authorization") && line.ends_with(&format!("Bearer {token}")));
    let (is_watch, is_unassigned) = (request.contains("watch=true"), request.contains(UNASSIGNED));
    if !authorized {
        shared.counts().refused += 1;
        client.write_all(answer("401 Unauthorized", "").as_bytes()).await?;
    } else if let Some(forged) = forged.filter(|_| is_watch) {
        shared.counts().forged += usize::from(is_unassigned);
        client.write_all(forged.as_bytes()).await?;
    } else {
        shared.counts().passed += usize::from(is_watch && is_unassigned);
        let kept = headers.lines().filter(|line| !is_header(line, "authorization") && !line.is_empty());
        let mut head = format!("{request}\r\n");
        kept.for_each(|line| head += &format!("{line}\r\n"));
        head += &format!("Authorization: Bearer {}\r\nConnection: close\r\n\r\n", shared.token);
        let name = ServerName::try_from(shared.server.parse::<SocketAddr>()?.ip().to_string())?;
        let mut server = shared.connector.connect(name, TcpStream::connect(&shared.server).await?).await?;
        server.write_all(head.as_bytes()).await?;
        copy_bidirectional(&mut client, &mut server).await?;
    }
    Ok(client.shutdown().await?)
}

/// Writes a kubeconfig like another one, for a server with these certificates and a token in a file.
pub(super) fn kubeconfig(of: &Value, address: &str, files: &Files, token: &Path, path: &Path) -> Result<()> {
    let mut kubeconfig = of.clone();
    let port = address.rsplit(':').next().context("an address has a port")?;
    let cluster = &mut kubeconfig["clusters"][0]["cluster"];
    cluster["server"] = format!("https://localhost:{port}").into();
    cluster["certificate-authority"] = files.authority.display().to_string().into();
    kubeconfig["users"][0]["user"] = json!({ "tokenFile": token });
    Ok(fs::write(path, serde_json::to_vec(&kubeconfig)?)?)
}

/// An HTTP response that ends with its connection.
pub(super) fn answer(status: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{body}")
}

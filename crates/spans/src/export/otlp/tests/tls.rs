//! What is wrong with an endpoint, in the words of the log.

use std::path::Path;

use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        RootCertStore, ServerConfig, crypto::ring, pki_types::PrivateKeyDer, server::WebPkiClientVerifier,
    },
};

use super::*;

/// A server with a certificate of its own making for this name. It may ask its clients for theirs.
async fn tls_server(name: &str, until_year: i32, asks: bool) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let (listener, address) = listen().await;
    parameters.distinguished_name.push(DnType::CommonName, address.to_string());
    parameters.not_after = date_time_ymd(until_year, 1, 1);
    let certificate = parameters.self_signed(&key).unwrap();
    let provider = Arc::new(ring::default_provider());
    let clients = if asks {
        let mut authorities = RootCertStore::empty();
        authorities.add(certificate.der().clone()).unwrap();
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), Arc::clone(&provider));
        verifier.build().unwrap()
    } else {
        WebPkiClientVerifier::no_client_auth()
    };
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(clients)
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).unwrap(),
        )
        .unwrap();
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // All stay open: a socket that is closed with unread bytes resets its connection, and the client may not see the alert.
        let mut refused = Vec::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            refused.push(acceptor.accept(stream).into_fallible().await);
        }
    });
    (format!("https://localhost:{}", address.port()), certificate.pem())
}

/// What is wrong with an endpoint.
async fn reason(endpoint: &str, authorities: Option<&Path>) -> String {
    let authorities = authorities.map(|path| ("OTEL_EXPORTER_OTLP_CERTIFICATE", path.to_str().unwrap()));
    let mut client = connect(settings("grpc", endpoint, authorities.as_slice()))
        .map_err(|error| error.to_string())
        .unwrap();
    match client.send(&mut []).await {
        Answer::Later { reason, .. } | Answer::Refused(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_error_names_its_cause_and_the_next_step() {
    let file = std::env::temp_dir().join(format!("schedspan-authorities-{}", std::process::id()));
    let (other, other_pem) = tls_server("localhost", 4000, false).await;
    for (name, until_year, own, says) in [
        ("localhost", 4000, false, ["signed by an unknown authority", "OTEL_EXPORTER_OTLP_CERTIFICATE"]),
        ("elsewhere", 4000, true, ["elsewhere", "use a name of its certificate"]),
        ("localhost", 2000, true, ["expired", "renew it"]),
    ] {
        let (endpoint, pem) = tls_server(name, until_year, false).await;
        std::fs::write(&file, if own { pem } else { other_pem.clone() }).unwrap();
        let reason = reason(&endpoint, Some(&file)).await;
        assert!(says.iter().all(|part| reason.contains(part)), "{reason}");
    }
    std::fs::write(&file, &other_pem).unwrap();
    let (listener, address) = listen().await;
    drop(listener);
    let refused = reason(&format!("http://{address}"), None).await;
    assert!(refused.starts_with("connection refused; start a Collector there"), "{refused}");
    let Collector { endpoint, .. } = http_collector(listen().await.0, vec![], usize::MAX);
    let plain = reason(&endpoint.replace("http://127.0.0.1", "https://localhost"), Some(&file)).await;
    assert!(plain.contains("does not speak TLS"), "{plain}");
    let protocol = reason(&endpoint, None).await;
    assert!(protocol.contains("OTEL_EXPORTER_OTLP_PROTOCOL"), "{protocol}");
    let unknown = reason("http://no-such-host.invalid:4317", None).await;
    assert!(unknown.contains("does not resolve"), "{unknown}");
    std::fs::write(&file, "no certificate").unwrap();
    let unusable =
        connect(settings("grpc", &other, &[("OTEL_EXPORTER_OTLP_CERTIFICATE", file.to_str().unwrap())]));
    let unusable = unusable.err().unwrap().to_string();
    assert!(unusable.contains("OTEL_EXPORTER_OTLP_CERTIFICATE: it has none"), "{unusable}");
    std::fs::remove_file(&file).unwrap();
}

#[tokio::test]
async fn a_collector_that_wants_a_certificate_of_its_clients_points_at_its_variables() {
    let file = std::env::temp_dir().join(format!("schedspan-asks-{}", std::process::id()));
    let (endpoint, pem) = tls_server("localhost", 4000, true).await;
    std::fs::write(&file, pem).unwrap();
    let reason = reason(&endpoint, Some(&file)).await;
    assert!(reason.contains("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"), "{reason}");
    std::fs::remove_file(&file).unwrap();
}

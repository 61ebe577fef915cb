//! A TLS front before the fake broker, with certificates made on the spot; it records how each connection begins.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// Somebody who signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate with its key, as PEM.
pub(crate) struct Signed {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut parameters = CertificateParams::new(vec![]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(parameters, key), pem }
    }

    pub(crate) fn file(&self, folder: &Path, name: &str) -> PathBuf {
        write(folder, name, &self.pem)
    }

    pub(crate) fn sign(&self, host: &str) -> Signed {
        self.sign_until(host, 2099)
    }

    pub(crate) fn sign_until(&self, host: &str, year: i32) -> Signed {
        let mut parameters = CertificateParams::new(vec![host.to_owned()]).unwrap();
        parameters.not_before = rcgen::date_time_ymd(2001, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap().pem();
        Signed { certificate, key: key.serialize_pem() }
    }
}

/// Signed by nobody but itself.
pub(crate) fn self_signed(host: &str) -> Signed {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().self_signed(&key).unwrap().pem();
    Signed { certificate, key: key.serialize_pem() }
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    let file = folder.join(name);
    std::fs::write(&file, text).unwrap();
    file
}

/// What a server shows; `clients` signs those that it lets in.
pub(crate) fn server(shown: &Signed, clients: Option<&Authority>) -> Arc<ServerConfig> {
    let certificates = CertificateDer::pem_slice_iter(shown.certificate.as_bytes()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(shown.key.as_bytes()).unwrap();
    let builder = match clients {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap()).unwrap();
            ServerConfig::builder()
                .with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
        }
    };
    Arc::new(builder.with_single_cert(certificates, key).unwrap())
}

pub(crate) struct Front {
    pub(crate) address: String,
    begins: Arc<Mutex<Vec<Vec<u8>>>>,
    let_in: Arc<AtomicUsize>,
}

impl Front {
    /// Passes what comes by TLS on to `to`. Without a configuration it is a server that speaks no TLS.
    pub(crate) async fn start(config: Option<Arc<ServerConfig>>, to: &str) -> Front {
        Front::start_changing(config.clone(), config, to).await
    }

    /// One that shows `first` on its first connection only.
    pub(crate) async fn start_changing(
        first: Option<Arc<ServerConfig>>,
        later: Option<Arc<ServerConfig>>,
        to: &str,
    ) -> Front {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let front = Front { address, begins: Arc::default(), let_in: Arc::default() };
        let (begins, let_in, to) = (front.begins.clone(), front.let_in.clone(), to.to_owned());
        tokio::spawn(async move {
            let mut config = first;
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, config, to.clone(), begins.clone(), let_in.clone()));
                config = later.clone();
            }
        });
        front
    }

    /// The first bytes of every connection so far.
    pub(crate) fn begins(&self) -> Vec<Vec<u8>> {
        self.begins.lock().unwrap().clone()
    }

    /// How many handshakes succeeded.
    pub(crate) fn let_in(&self) -> usize {
        self.let_in.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: TcpStream,
    config: Option<Arc<ServerConfig>>,
    to: String,
    begins: Arc<Mutex<Vec<Vec<u8>>>>,
    let_in: Arc<AtomicUsize>,
) {
    let mut begin = [0; 6];
    let read = stream.peek(&mut begin).await.unwrap_or(0);
    if read > 0 {
        begins.lock().unwrap().push(begin[..read].to_vec());
    }
    let Some(config) = config else {
        let _ = stream.write_all(b"\0\0\0\x08plain text").await;
        return;
    };
    let Ok(mut stream) = TlsAcceptor::from(config).accept(stream).await else { return };
    let_in.fetch_add(1, Ordering::SeqCst);
    let mut behind = TcpStream::connect(&to).await.unwrap();
    let _ = copy_bidirectional(&mut stream, &mut behind).await;
}

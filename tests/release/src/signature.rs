//! Signatures by Ed25519, with a key that is given: <https://www.rfc-editor.org/rfc/rfc8032>.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, anyhow};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};

/// What stands before the 32 bytes of a public key in DER: <https://www.rfc-editor.org/rfc/rfc8410#section-4>.
const PUBLIC: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// A private key.
pub(crate) struct Key(Ed25519KeyPair);

impl Key {
    /// Reads a key in PEM.
    ///
    /// # Errors
    ///
    /// If the file has no private key of Ed25519.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let pem = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
        Self::of_pem(&pem)
            .with_context(|| format!("`{}` is not a private key of Ed25519 in PEM", path.display()))
    }

    fn of_pem(pem: &str) -> Result<Self> {
        let lines: String = pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
        let der = STANDARD.decode(lines)?;
        // openssl leaves the public key out.
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|why| anyhow!("{why}"))?;
        Ok(Self(pair))
    }

    /// The 64 bytes of the signature.
    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }

    /// The public key in PEM.
    pub(crate) fn public_pem(&self) -> String {
        let der = [&PUBLIC, self.0.public_key().as_ref()].concat();
        format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der))
    }
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use super::*;

    fn openssl(folder: &Path, arguments: &str) -> bool {
        let mut openssl = Command::new("openssl");
        openssl.args(arguments.split(' ')).current_dir(folder).output().unwrap().status.success()
    }

    #[test]
    fn openssl_accepts_a_signature_and_refuses_one_of_other_content() {
        let folder = env::temp_dir().join(format!("schedspan-signature-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        assert!(openssl(&folder, "genpkey -algorithm ed25519 -out key"));
        let key = Key::read(&folder.join("key")).unwrap();
        fs::write(folder.join("key.pub"), key.public_pem()).unwrap();
        fs::write(folder.join("SHA256SUMS"), "content").unwrap();
        let verifies = |content: &str| {
            fs::write(folder.join("SHA256SUMS.sig"), key.sign(content.as_bytes())).unwrap();
            openssl(
                &folder,
                "pkeyutl -verify -pubin -inkey key.pub -rawin -in SHA256SUMS -sigfile SHA256SUMS.sig",
            )
        };
        assert!(verifies("content"));
        assert!(!verifies("other content"));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_key_is_refused() {
        for text in ["", "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key"] {
            assert!(Key::of_pem(text).is_err(), "{text}");
        }
    }
}

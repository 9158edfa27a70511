//! Object storage.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path as Key;
use object_store::{BackoffConfig, ClientOptions, MultipartUpload, ObjectStoreExt, RetryConfig};
use tokio::runtime::Runtime;

use crate::folder::{Deliver, Failure};

/// Files above this go in parts of it, one after the other: all that is in memory.
const PART: usize = 16 << 20;
/// The client's own attempts for each request, beside those for each file.
const RETRY: RetryConfig = RetryConfig {
    backoff: BackoffConfig {
        init_backoff: Duration::from_millis(100),
        max_backoff: Duration::from_secs(5),
        base: 2.0,
    },
    max_retries: 3,
    retry_timeout: Duration::from_secs(30),
};

/// A bucket, and the prefix of keys.
pub struct Bucket {
    store: AmazonS3,
    prefix: String,
    runtime: Runtime,
}

impl Bucket {
    /// The bucket of `s3://BUCKET/PREFIX`, with what the environment's AWS_* variables say.
    pub fn new(url: &str) -> anyhow::Result<Bucket> {
        let (bucket, prefix) = url["s3://".len()..].split_once('/').unwrap_or((&url["s3://".len()..], ""));
        let is_plain = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"]
            .iter()
            .any(|name| std::env::var(name).is_ok_and(|url| url.starts_with("http://")));
        let client = ClientOptions::new().with_allow_http(is_plain).with_timeout(Duration::from_secs(120));
        let store = AmazonS3Builder::from_env()
            .with_client_options(client)
            .with_retry(RETRY)
            .with_bucket_name(bucket)
            .build()
            .context("the bucket cannot be used; set the variables AWS_*")?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(Bucket { store, prefix: prefix.trim_matches('/').to_owned(), runtime })
    }
}

impl Deliver for Bucket {
    /// The key exists with all bytes, or as before.
    fn deliver(&mut self, file: &Path, key: &str) -> Result<u64, Failure> {
        let key = if self.prefix.is_empty() { key.to_owned() } else { format!("{}/{key}", self.prefix) };
        let to = Key::parse(&key).with_context(|| format!("{key} is no key"))?;
        let cannot = || format!("cannot upload {}", file.display());
        let mut source = File::open(file).with_context(cannot)?;
        let mut next = || {
            let mut part = Vec::new();
            source.by_ref().take(PART as u64).read_to_end(&mut part).map(|_| part)
        };
        let store = &self.store;
        let upload = async {
            let first = next()?;
            if first.len() < PART {
                store.put(&to, first.into()).await?;
                return anyhow::Ok(());
            }
            let mut upload = store.put_multipart(&to).await?;
            let mut part = first;
            let sent = loop {
                if part.is_empty() {
                    break upload.complete().await.map(drop).map_err(anyhow::Error::from);
                }
                if let Err(error) = upload.put_part(part.into()).await {
                    break Err(error.into());
                }
                part = match next() {
                    Ok(part) => part,
                    Err(error) => break Err(error.into()),
                };
            };
            if sent.is_err() {
                // Else the parts would stay, unseen.
                drop(upload.abort().await);
            }
            sent
        };
        self.runtime.block_on(upload).with_context(cannot)?;
        Ok(0)
    }
}

//! Where a case happens: an embedded log in a directory of its own, and the faulty log around it.

use crate::faulty::FaultyLog;
use crate::faulty::ledger::{Entry, Ledger, Settled, memory};
use onceflow::log::Log;
use onceflow::log::embedded::{EmbeddedLog, EmbeddedOptions, Sync};
use onceflow::storage::StoreFactory;
use onceflow::{Config, Runtime};
use std::sync::Arc;
use tempfile::TempDir;

pub(crate) struct World {
    pub(crate) plain: Arc<dyn Log>,
    pub(crate) faulty: Arc<FaultyLog>,
    pub(crate) stores: Arc<dyn StoreFactory>,
    pub(crate) directory: TempDir,
}

pub(crate) fn options() -> EmbeddedOptions {
    EmbeddedOptions { sync: Sync::Never, ..EmbeddedOptions::default() }
}

impl World {
    pub(crate) fn new() -> World {
        World::with(options())
    }

    pub(crate) fn with(options: EmbeddedOptions) -> World {
        let directory = tempfile::tempdir().unwrap();
        let plain: Arc<dyn Log> = Arc::new(EmbeddedLog::open(directory.path().join("log"), options).unwrap());
        World::around(plain, directory, memory())
    }

    pub(crate) fn around(plain: Arc<dyn Log>, directory: TempDir, stores: Arc<dyn StoreFactory>) -> World {
        World { faulty: FaultyLog::new(plain.clone()), plain, stores, directory }
    }

    /// Closes the log; it can be opened again in the directory. Runtimes must be gone.
    pub(crate) fn close(self) -> TempDir {
        self.directory
    }

    pub(crate) async fn start(&self, ledger: &Ledger, config: Config) -> Runtime {
        ledger.start(&self.faulty, &self.stores, config).await
    }

    pub(crate) async fn settle(&self, ledger: &Ledger, runtime: &mut Runtime, entries: &[Entry]) -> Settled {
        ledger.settle(runtime, &self.faulty, &self.plain, entries).await
    }

    /// Starts the job, waits for the output of `entries`, drains.
    pub(crate) async fn run(&self, ledger: &Ledger, config: Config, entries: &[Entry]) {
        let mut runtime = self.start(ledger, config).await;
        let settled = self.settle(ledger, &mut runtime, entries).await;
        assert!(matches!(settled, Settled::Done), "{settled:?}");
        runtime.drain().await.unwrap();
        self.faulty.reborn().await;
    }

    /// Stops a job as a crash would, and waits until nothing of it is left.
    pub(crate) async fn crash(&self, runtime: Runtime) {
        drop(runtime);
        self.faulty.reborn().await;
    }
}

//! The arguments of `service`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Let a root cawld record services of systemd
///
/// Writes, removes and lists drop-ins. The daemon must allow the service's user: `cawld --allow-user USER`.
/// Nothing is restarted. docs/guide/SERVICES.md shows PostgreSQL, Redis, MariaDB and containers.
#[derive(Args)]
pub struct ServiceArgs {
    #[command(subcommand)]
    pub command: ServiceCommand,
}

#[derive(Subcommand)]
pub enum ServiceCommand {
    Enable(EnableArgs),
    Disable(DisableArgs),
    Status(ServiceStatusArgs),
    /// Put the tracer where programs of every user can load it, and print its path, for containers
    Library(RootArgs),
}

/// Trace a service from its next start on
///
/// Installs the tracer where every user can load it, and writes UNIT.d/50-cawl.conf in /etc/systemd/system:
/// the tracer, the daemon's socket, and the exceptions from the unit's restrictions that the tracer needs.
/// Run it again to update the drop-in.
#[derive(Args)]
pub struct EnableArgs {
    /// The service, such as redis-server or postgresql@15-main
    pub unit: String,
    /// Where the daemon listens
    #[arg(long, value_name = "PATH", default_value = "/run/cawl/cawld.sock")]
    pub socket: PathBuf,
    /// Print the drop-in and write nothing
    #[arg(long)]
    pub print: bool,
    #[command(flatten)]
    pub root: RootArgs,
}

/// Stop tracing a service from its next start on
#[derive(Args)]
pub struct DisableArgs {
    /// The service
    pub unit: String,
    #[command(flatten)]
    pub root: RootArgs,
}

/// List the services that are traced
#[derive(Args)]
pub struct ServiceStatusArgs {
    /// Machine-readable output
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub root: RootArgs,
}

/// The system to work on.
#[derive(Args)]
pub struct RootArgs {
    /// Work on the system below this folder, as systemctl's --root
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
}

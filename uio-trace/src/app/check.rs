//! `check`: what this kernel and this user allow, hook by hook.

use super::{meta, preflight, tracer};
use crate::{
    cli::CheckArgs,
    error::AppError,
    kernel::{KernelFacts, Root, stacks},
    model::snapshot::{Meta, Probe, ProbeState},
    probes::session::{Session, SessionConfig},
    stdout,
};
use std::io::Write;

/// Loads and attaches everything, says how that went, and takes it back.
///
/// # Errors
/// As the run would end: 3 not permitted, 4 this kernel cannot. The report is printed before.
pub fn run(args: &CheckArgs) -> Result<(), AppError> {
    stdout::check()?;
    let root = Root::system();
    let facts = KernelFacts::read(&root);
    let permitted = preflight::may_trace(&facts);
    let config = SessionConfig {
        slow_ns: u64::MAX,
        hold_uio: args.hold_uio,
        ..SessionConfig::default()
    };
    let (facts, probes, verdict) = match permitted {
        Err(error) => (facts, Vec::new(), Err(error)),
        Ok(()) => match Session::start(root.clone(), facts, &config) {
            Ok(session) => {
                let mut probes = session.probes();
                probes.push(tracer::stacks_row(&stacks::readable(&root)));
                let verdict = preflight::can_trace(session.facts(), &probes);
                (session.into_facts(), probes, verdict)
            }
            Err(error) => {
                let facts = KernelFacts::read(&root);
                let verdict = Err(preflight::load_failed(&facts, &error));
                (facts, Vec::new(), verdict)
            }
        },
    };
    let meta = meta::meta(&root, &facts, probes);
    let mut out = stdout::lock()?;
    if args.json {
        let mut record = serde_json::to_value(&meta).map_err(|e| AppError::Failed(e.to_string()))?;
        if let Some(record) = record.as_object_mut() {
            record.insert("type".into(), "meta".into());
            record.insert("lockdown".into(), facts.lockdown.name().into());
            record.insert("btf".into(), facts.btf.is_ok().into());
            record.insert("missing_capabilities".into(), facts.privileges.missing().into());
        }
        writeln!(out, "{record}")?;
    } else {
        write!(out, "{}", text(&meta, &facts))?;
    }
    out.flush()?;
    verdict
}

/// The report, under 80 columns where the reasons allow.
fn text(meta: &Meta, facts: &KernelFacts) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(meta.tool.clone());
    line(format!(
        "host {}  kernel {}  {}",
        meta.host, meta.kernel, meta.started
    ));
    line(match &facts.btf {
        Ok(_) => "BTF: yes".to_owned(),
        Err(reason) => format!("BTF: no ({reason})"),
    });
    line(format!("lockdown: {}", facts.lockdown.name()));
    let missing = facts.privileges.missing();
    line(if missing.is_empty() {
        "capabilities: all that are needed".to_owned()
    } else {
        format!("capabilities missing: {}", missing.join(", "))
    });
    let rcu: Vec<String> = meta
        .rcu
        .iter()
        .map(|(name, value)| crate::format::kernel_setting(name, value))
        .map(|(label, text)| format!("{label}: {text}"))
        .collect();
    match rcu.is_empty() {
        true => line("RCU and CPUs: unknown".into()),
        false => line("RCU and CPUs:".into()),
    }
    rcu.iter().for_each(|setting| line(format!("  {setting}")));
    if !meta.probes.is_empty() {
        line(String::new());
        line(format!(
            "{:<10} {:<32} {:<10} {}",
            "SUBJECT", "HOOK", "STATE", "HOW / WHY NOT"
        ));
    }
    for probe in &meta.probes {
        line(row(probe));
    }
    out
}

fn row(probe: &Probe) -> String {
    let state = match probe.state {
        ProbeState::Attached => "attached",
        ProbeState::Waiting => "waiting",
        ProbeState::Failed => "FAILED",
        ProbeState::NotNeeded => "not needed",
    };
    let how = match (&probe.method, &probe.reason) {
        (Some(method), None) => method.clone(),
        (Some(method), Some(reason)) => format!("{method} ({reason})"),
        (None, Some(reason)) => reason.clone(),
        (None, None) => String::new(),
    };
    format!("{:<10} {:<32} {:<10} {}", probe.subject, probe.hook, state, how)
}

"""One rule a file, named after its id; one row here."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from gdsctl.assess.rule import Rule

MODULES: tuple[str, ...] = (
    "acs_cmdline_not_effective",
    "acs_redirect_on_path",
    "acs_unreadable",
    "beegfs_unpatched",
    "container_io_uring_refused",
    "container_memlock_limited",
    "container_no_cufile_json",
    "container_no_data_volume",
    "container_no_gpu",
    "container_no_nvidia_fs_device",
    "container_no_rdma_device",
    "container_no_sysfs",
    "container_no_udev",
    "container_own_network",
    "container_toolkit_skips_mounts",
    "cufile_address_lists",
    "cufile_alignment",
    "cufile_compat_forbidden",
    "cufile_compat_forced",
    "cufile_compat_hides_failure",
    "cufile_dead_key",
    "cufile_denylist_name",
    "cufile_denylisted",
    "cufile_env_boolean",
    "cufile_env_missing",
    "cufile_key_newer_than_library",
    "cufile_label_not_key",
    "cufile_log_name",
    "cufile_log_tells",
    "cufile_missing_path",
    "cufile_range",
    "cufile_slab_lengths",
    "cufile_static_routing",
    "cufile_syntax",
    "cufile_type",
    "cufile_unknown_key",
    "cufile_wrong_section",
    "driver_not_loaded",
    "driver_pending_reboot",
    "driver_proprietary",
    "driver_refcount_bug_kernel",
    "driver_registry_key_conflict",
    "driver_registry_key_missing",
    "fs_device_mapper",
    "fs_ext4_data_ordered",
    "fs_md_level",
    "fs_md_udev_rule",
    "fs_overlay",
    "fs_tmpfs",
    "fs_unsupported",
    "gdscheck_false_positive_gpfs",
    "gpfs_verbsports_mismatch",
    "gpu_bar1_small",
    "gpu_compute_capability",
    "gpu_geforce",
    "gpu_integrated",
    "gpu_pinning_refused",
    "iommu_passthrough",
    "iommu_translated",
    "kernel_no_module_list",
    "kernel_no_p2pdma",
    "kernel_p2pdma_host_bridge",
    "lnet_unpatched",
    "nfs_localports_missing",
    "nfs_nconnect",
    "nfs_port",
    "nfs_tcp",
    "nfs_vast_options_inbox_client",
    "nvidia_fs_known_bad_version",
    "nvidia_fs_no_device_node",
    "nvidia_fs_not_loaded",
    "nvidia_fs_page_table_version",
    "nvidia_fs_proprietary_driver",
    "nvidia_fs_stats_disabled",
    "nvidia_fs_symbol_version",
    "nvidia_fs_version_too_old",
    "nvme_integrity_capable",
    "nvme_native_multipath",
    "nvme_rdma_unpatched",
    "nvme_symbol_mismatch",
    "nvme_unpatched",
    "p2pdma_driver_too_old",
    "p2pdma_filesystem_unsupported",
    "p2pdma_gpu_unsupported",
    "p2pdma_half_configured",
    "p2pdma_kernel_refused",
    "pci_cross_root",
    "pci_cross_socket",
    "pci_link_degraded",
    "pci_no_numa",
    "rdma_dev_addr_list_empty",
    "rdma_dev_addr_not_ipv4",
    "rdma_dev_addr_not_local",
    "rdma_dev_addr_wrong_nic",
    "rdma_no_common_switch",
    "rdma_peermem_missing",
    "routing_policy_not_applicable",
    "routing_useless",
    "rpcrdma_non_gpl_symbol",
    "rpcrdma_unpatched",
    "scatefs_unpatched",
    "secure_boot_unsigned",
    "source_mixed_machines",
    "topo_disagrees",
    "version_mismatch",
)


@functools.cache
def rules() -> tuple[Rule, ...]:
    """All rules, root causes first."""
    from gdsctl.assess.engine import in_dependency_order

    return in_dependency_order(importlib.import_module(f"{__name__}.{module}").RULE for module in MODULES)


def ids() -> tuple[str, ...]:
    return tuple(sorted(rule.id for rule in rules()))


def explained() -> tuple[str, ...]:
    """All ids that have a story: the node's rules, and what is found in the configuration of applications."""
    from gdsctl.data.app_findings import stories

    return tuple(sorted((*ids(), *stories())))


def explanation(id_: str) -> dict[str, Any] | None:
    """A rule's story as plain values, or None for an id that does not exist."""
    from gdsctl.data.app_findings import stories

    rule = next((rule for rule in rules() if rule.id == id_), None) or stories().get(id_)
    if rule is None:
        return None
    return {
        "id": rule.id,
        "severity": rule.severity,
        "otherwise": rule.otherwise,
        "problem": rule.problem,
        "why": rule.why,
        "look_at": rule.look_at,
        "remedy": rule.remedy,
        "not_to_conclude": rule.not_to_conclude,
        "blocks": rule.blocks,
        "after": rule.after,
        "source": rule.source,
    }

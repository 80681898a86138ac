package main

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

func options(metrics string) ctrl.Options {
	return ctrl.Options{MetricsBindAddress: metrics, HealthProbeBindAddress: "0"}
}

// All requests are of one type.
func others(manager.Manager, func(client.Object) bool) error {
	return nil
}

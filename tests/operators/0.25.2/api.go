package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func options(metrics string) ctrl.Options {
	return ctrl.Options{Metrics: metricsserver.Options{BindAddress: metrics}, HealthProbeBindAddress: "0"}
}

// others adds a controller whose requests are names, without namespaces.
func others(manager manager.Manager, is func(client.Object) bool) error {
	done := func(context.Context, string) (reconcile.Result, error) { return reconcile.Result{}, nil }
	names, err := controller.NewTyped("names", manager, controller.TypedOptions[string]{
		Reconciler: reconcile.TypedFunc[string](done),
	})
	if err != nil {
		return err
	}
	named := func(_ context.Context, object *corev1.ConfigMap) []string {
		if !is(object) {
			return nil
		}
		return []string{object.Name}
	}
	return names.Watch(source.TypedKind(manager.GetCache(), &corev1.ConfigMap{},
		handler.TypedEnqueueRequestsFromMapFunc(named)))
}
